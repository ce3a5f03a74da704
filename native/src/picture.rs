//! Pictures as files, SVG or PNG by the name's ending, and what their charts have in common. Brings the
//! one font of its labels; asks the system for none. Knows nothing of what is drawn.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;

use crate::whole_file;

/// The name of the one font of labels.
pub const FONT: &str = "sans-serif";

/// What can be drawn.
pub trait Picture {
    /// Pixels, across and down.
    fn size(&self) -> (u32, u32);

    /// Draws it.
    ///
    /// # Errors
    /// What is to be drawn cannot be.
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> anyhow::Result<()>;
}

/// The kinds of files there are.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl Format {
    /// By a name's ending, in capitals or not.
    fn of(path: &Path) -> anyhow::Result<Self> {
        let ending = path.extension().and_then(|e| e.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => bail!(
                "{} is no .svg and no .png, which a plot is written as",
                path.display()
            ),
        }
    }
}

/// Checks that a plot can be written there, and leaves everything as it is.
///
/// # Errors
/// An ending that is neither `.svg` nor `.png`, a folder or a pipe under that name, or a file that cannot be
/// written.
pub fn check(path: &Path) -> anyhow::Result<()> {
    Format::of(path)?;
    whole_file::check(path).with_context(|| unwritten(path))
}

fn unwritten(path: &Path) -> String {
    format!("the plot {} cannot be written", path.display())
}

fn font() -> anyhow::Result<()> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let fine = REGISTERED.get_or_init(|| {
        let bytes = epaint_default_fonts::UBUNTU_LIGHT;
        register_font(FONT, FontStyle::Normal, bytes).is_ok()
    });
    fine.then_some(()).context("the font of labels is broken")
}

/// Draws a picture into a file, whole or not at all.
///
/// # Errors
/// As of [`check`].
pub fn write(picture: &impl Picture, path: &Path) -> anyhow::Result<()> {
    font()?;
    let size = picture.size();
    let bytes = match Format::of(path)? {
        Format::Svg => {
            let mut text = String::new();
            picture.draw(&SVGBackend::with_string(&mut text, size).into_drawing_area())?;
            text.into_bytes()
        }
        Format::Png => {
            let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
            picture.draw(&BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area())?;
            let mut bytes = Vec::new();
            let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
            encoder.set_color(png::ColorType::Rgb);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(&pixels)?;
            writer.finish()?;
            bytes
        }
    };
    whole_file::write(path, &bytes).with_context(|| unwritten(path))
}

/// What every chart starts from.
pub fn panel<'a, 'b, B: DrawingBackend>(
    area: &'a DrawingArea<B, Shift>,
) -> ChartBuilder<'a, 'b, B> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(12).x_label_area_size(44).y_label_area_size(76);
    chart
}

/// A number as an axis needs it: three digits, without noughts behind the point.
pub fn digits(value: f64) -> String {
    let places = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_digits_that_tell_them_apart() {
        for (value, text) in [
            (0.0, "0"),
            (0.0125, "0.0125"),
            (1.5, "1.5"),
            (10.0, "10"),
            (1000.0, "1000"),
            (12_345.6, "12346"),
        ] {
            assert_eq!(digits(value), text);
        }
    }
}
