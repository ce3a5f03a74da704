//! Pictures as files, SVG or PNG by the name's ending, and what their charts have in common. Brings the
//! one font of its labels; asks the system for none. Knows nothing of what is drawn.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, bail};
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints as _, LogCoord, WithKeyPoints};
use plotters::prelude::*;
use plotters::style::register_font;

use crate::whole_file;

/// The name of the one font of labels.
pub const FONT: &str = "sans-serif";

/// Least distance of two marks of an axis, of its length.
const LEAST_GAP: f64 = 0.08;

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

/// An axis of logarithms, with marks whose labels have room.
pub fn log_axis(least: f64, most: f64) -> WithKeyPoints<LogCoord<f64>> {
    (least..most)
        .log_scale()
        .with_key_points(marks(least, most))
}

/// Round numbers, each so far from the next that the labels of both have room.
fn marks(least: f64, most: f64) -> Vec<f64> {
    let gap = (most / least).ln() * LEAST_GAP;
    let within = |marks: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
        marks.filter(|mark| (least..=most).contains(mark)).collect()
    };
    let is_roomy = |marks: &Vec<f64>| {
        let mut pairs = marks.windows(2);
        pairs.all(|pair| (pair[1] / pair[0]).ln() >= gap)
    };
    if most < least * 4.0 {
        // Hardly other than a plain axis.
        let size = 10.0_f64.powf((most - least).log10().floor() - 2.0);
        let steps =
            (0..).flat_map(|n| [1.0, 2.0, 5.0].map(|digit| digit * 10.0_f64.powi(n) * size));
        let mut all = steps.map(|step| {
            let first = (least / step).ceil() as u64;
            let last = (most / step).floor() as u64;
            within(&mut (first..=last).map(|n| n as f64 * step))
        });
        return all.find(is_roomy).unwrap_or_default();
    }
    let decades = || least.log10().floor() as i32..=most.log10().ceil() as i32;
    let fine = decades().flat_map(|n| [1.0, 2.0, 5.0].map(|digit| digit * 10.0_f64.powi(n)));
    let fine = within(&mut fine.into_iter());
    if is_roomy(&fine) {
        return fine;
    }
    let mut coarse = (1..).map(|every| {
        let some = decades().filter(|n| n % every == 0);
        within(&mut some.map(|n| 10.0_f64.powi(n)))
    });
    coarse.find(is_roomy).unwrap_or_default()
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
    fn marks_are_round_and_their_labels_have_room() {
        for (least, most, first) in [
            (10.2, 13.4, &["10.5", "11", "11.5"][..]),
            (0.7, 2.2, &["0.8", "1", "1.2"]),
            (3.0, 60.0, &["5", "10", "20"]),
            (0.01, 9.0, &["0.01", "0.02", "0.05"]),
            (0.5, 1e5, &["1", "10", "100"]),
            (1e-3, 1e18, &["0.01", "1", "100"]),
        ] {
            let marks = marks(least, most);
            let labels: Vec<_> = marks.iter().map(|mark| digits(*mark)).collect();
            assert_eq!(labels[..3], *first, "{labels:?}");
            assert!(marks.len() <= 13 && marks.iter().all(|mark| (least..=most).contains(mark)));
            let gaps = marks.windows(2).map(|pair| (pair[1] / pair[0]).ln());
            let whole = (most / least).ln();
            assert!(gaps.fold(whole, f64::min) >= whole / 12.5, "{labels:?}");
        }
    }

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
