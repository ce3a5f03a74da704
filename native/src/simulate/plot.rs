//! Runs as pictures, SVG or PNG by the file's ending: latency against rate, steps under the roof, and
//! the cache over time. Brings the one font of its labels; asks the system for none.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, anyhow, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use twoclock_core::sched::{Hardware, Regime};

use super::run::Outcome;
use super::summary::Summary;

const FONT: &str = "sans-serif";
const PANEL: (u32, u32) = (900, 480);
/// Most dots of a policy in a panel.
const MOST_DOTS: usize = 3000;

/// What there is to draw.
pub struct Plot<'a> {
    /// What was simulated.
    pub title: &'a str,
    /// The device.
    pub hardware: &'a Hardware,
    /// Runs of one rate, of which steps and cache are drawn.
    pub outcomes: &'a [Outcome],
    /// Policies with their runs over rates, ascending.
    pub sweeps: &'a [(String, Vec<Summary>)],
}

/// Colours told apart also without red and green (M. Okabe, K. Ito, "Color Universal Design").
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

fn font() -> anyhow::Result<()> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let fine = REGISTERED.get_or_init(|| {
        let bytes = epaint_default_fonts::UBUNTU_LIGHT;
        register_font(FONT, FontStyle::Normal, bytes).is_ok()
    });
    fine.then_some(()).context("the font of labels is broken")
}

impl Plot<'_> {
    /// Draws it into a file.
    ///
    /// # Errors
    /// An ending that is neither `.svg` nor `.png`, or a file that cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        font()?;
        let panels = u32::from(!self.sweeps.is_empty()) + 2;
        let size = (PANEL.0, PANEL.1 * panels);
        let unwritten = || format!("{} cannot be written", path.display());
        match path.extension().and_then(|e| e.to_str()) {
            Some("svg") => {
                let mut text = String::new();
                self.draw(&SVGBackend::with_string(&mut text, size).into_drawing_area())?;
                fs::write(path, text).with_context(unwritten)
            }
            Some("png") => {
                let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
                self.draw(&BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area())?;
                let file = fs::File::create(path).with_context(unwritten)?;
                let mut encoder = png::Encoder::new(file, size.0, size.1);
                encoder.set_color(png::ColorType::Rgb);
                let mut writer = encoder.write_header().with_context(unwritten)?;
                writer.write_image_data(&pixels).with_context(unwritten)?;
                writer.finish().with_context(unwritten)
            }
            _ => bail!("{} is no .svg and no .png", path.display()),
        }
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> anyhow::Result<()> {
        let failed = |e: DrawingAreaErrorKind<B::ErrorType>| anyhow!("a plot failed: {e}");
        area.fill(&WHITE).map_err(failed)?;
        let panels = area.split_evenly((2 + usize::from(!self.sweeps.is_empty()), 1));
        let mut panels = panels.iter();
        if !self.sweeps.is_empty() {
            let panel = panels.next().context("there is a panel for rates")?;
            self.latency(panel).map_err(failed)?;
        }
        let panel = panels.next().context("there is a panel for steps")?;
        self.roofline(panel).map_err(failed)?;
        let panel = panels.next().context("there is a panel for the cache")?;
        self.cache(panel).map_err(failed)?;
        area.present().map_err(failed)
    }

    /// Normalized latency against the rate of requests.
    fn latency<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = |runs: &[Summary]| -> Vec<(f64, f64)> {
            runs.iter()
                .filter_map(|s| Some((s.offered_rate?, s.normalized_latency.mean)))
                .collect()
        };
        let all: Vec<_> = self
            .sweeps
            .iter()
            .flat_map(|(_, runs)| points(runs))
            .collect();
        let most_rate = all.iter().map(|p| p.0).fold(0.0, f64::max);
        let least = all.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
        // Beyond saturation latency only tells how long the trace was.
        let most = (least * 40.0).min(all.iter().map(|p| p.1).fold(least, f64::max) * 1.1);
        let mut chart = ChartBuilder::on(area)
            .caption(format!("Latency by rate: {}", self.title), (FONT, 22))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..most_rate * 1.05, 0.0..most)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("requests a second")
            .y_desc("seconds a token, from arrival")
            .y_label_formatter(&|y| format!("{y:.2}"))
            .draw()?;
        for (index, (policy, runs)) in self.sweeps.iter().enumerate() {
            let colour = colour(index);
            let inside: Vec<_> = clipped(&points(runs), most);
            chart
                .draw_series(LineSeries::new(
                    inside.iter().copied(),
                    colour.stroke_width(2),
                ))?
                .label(policy.clone())
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled())
                });
            let dots = points(runs).into_iter().filter(|p| p.1 <= most);
            chart.draw_series(dots.map(|p| Circle::new(p, 4, colour.filled())))?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)
    }

    /// Steps by operations a byte and operations a second, under what the device reaches.
    fn roofline<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let steps = || self.outcomes.iter().flat_map(|o| &o.steps);
        let least = steps().map(|s| s.intensity).fold(1.0, f64::min).max(1e-3);
        let most = steps().map(|s| s.intensity).fold(1e3, f64::max);
        let slowest = steps().map(|s| s.flops).fold(f64::INFINITY, f64::min);
        let peak = self.hardware.flops.gemm.max(self.hardware.flops.skinny);
        let low = slowest.min(least * self.hardware.bandwidth) / 2.0;
        let mut chart = ChartBuilder::on(area)
            .caption(format!("Steps under the roof: {}", self.title), (FONT, 22))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(
                (least / 1.5..most * 1.5).log_scale(),
                (low / 1e12..peak * 2.0 / 1e12).log_scale(),
            )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("operations a byte")
            .y_desc("TFLOP/s")
            .draw()?;
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let colour = colour(index);
            let every = outcome.steps.len().div_ceil(MOST_DOTS).max(1);
            let dots = outcome.steps.iter().step_by(every).map(|step| {
                let at = (step.intensity, step.flops / 1e12);
                Circle::new(at, 2, colour.mix(0.5).filled())
            });
            chart
                .draw_series(dots)?
                .label(outcome.policy.to_string())
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled())
                });
        }
        for regime in Regime::ALL {
            let roof = (0..200).map(|i| {
                let x = least / 1.5 * (most * 2.25 / least).powf(f64::from(i) / 199.0);
                let rate = self.hardware.flops.get(regime);
                (x, (x * self.hardware.bandwidth).min(rate) / 1e12)
            });
            chart.draw_series(LineSeries::new(roof, BLACK.stroke_width(1)))?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    }

    /// Slots held, and slots with tokens in them, over time.
    fn cache<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let last = |o: &Outcome| o.steps.last().map_or(0.0, |s| s.begin + s.seconds);
        // A policy that takes much longer than the others shows only that it does.
        let shortest = self.outcomes.iter().map(last).fold(f64::INFINITY, f64::min);
        let longest = self.outcomes.iter().map(last).fold(1e-9, f64::max);
        let end = longest.min(1.5 * shortest);
        let mut chart = ChartBuilder::on(area)
            .caption(format!("Key/value slots: {}", self.title), (FONT, 22))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..end * 1.3, 0.0..105.0)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("seconds")
            .y_desc("% of the cache")
            .draw()?;
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let colour = colour(index);
            let every = outcome.steps.len().div_ceil(MOST_DOTS).max(1);
            let share = |slots: usize| 100.0 * slots as f64 / outcome.kv_slots as f64;
            let steps = || {
                let shown = outcome.steps.iter().take_while(|s| s.begin <= end);
                shown.step_by(every)
            };
            let held = steps().map(|s| (s.begin, share(s.kv_held)));
            chart.draw_series(LineSeries::new(held, colour.mix(0.35).stroke_width(1)))?;
            let used = steps().map(|s| (s.begin, share(s.kv_used)));
            chart
                .draw_series(LineSeries::new(used, colour.stroke_width(2)))?
                .label(format!("{}: filled (pale: held)", outcome.policy))
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled())
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    }
}

/// A line up to where it leaves the picture at `most`.
fn clipped(points: &[(f64, f64)], most: f64) -> Vec<(f64, f64)> {
    let mut inside = Vec::new();
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if y0 > most {
            break;
        }
        inside.push((x0, y0));
        match y1 > most {
            true => inside.push((x0 + (x1 - x0) * (most - y0) / (y1 - y0), most)),
            false => inside.push((x1, y1)),
        }
    }
    if points.len() == 1 {
        inside.extend_from_slice(points);
    }
    inside
}

fn legend<'a, B, C>(
    chart: &mut ChartContext<'a, B, C>,
    position: SeriesLabelPosition,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
where
    B: DrawingBackend + 'a,
    C: CoordTranslate,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 15))
        .draw()
}
