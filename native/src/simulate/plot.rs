//! Runs as pictures, SVG or PNG by the file's ending: latency against rate, steps under the roof, and
//! the cache over time. Brings the one font of its labels; asks the system for none.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use twoclock_core::sched::{Hardware, Regime};

use super::run::{Outcome, Step};
use super::summary::Summary;
use crate::marks::{Mark, Sample, legend};
use crate::picture::{self, FONT, Picture, digits, log_axis, panel};

/// Pixels of a panel, and of the legend in it.
const PANEL: (u32, u32) = (960, 480);
const LEGEND: u32 = 220;
/// Most dots of a policy in a panel, and most points of a line.
const MOST_DOTS: usize = 300;
const MOST_POINTS: usize = 800;
/// Marks on a line over time.
const MARKS_OF_A_LINE: usize = 10;

/// What there is to draw.
pub struct Plot<'a> {
    /// What was simulated.
    pub title: &'a str,
    /// The rate of `outcomes`.
    pub times: &'a str,
    /// The device.
    pub hardware: &'a Hardware,
    /// Runs of one rate, of which steps and cache are drawn.
    pub outcomes: &'a [Outcome],
    /// Policies with their runs over rates, ascending; none where there is one rate.
    pub sweeps: &'a [(String, Vec<Summary>)],
}

impl Picture for Plot<'_> {
    fn size(&self) -> (u32, u32) {
        (PANEL.0, PANEL.1 * (u32::from(self.is_swept()) + 2))
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> anyhow::Result<()> {
        let failed = |e: DrawingAreaErrorKind<B::ErrorType>| anyhow!("a plot failed: {e}");
        area.fill(&WHITE).map_err(failed)?;
        let panels = area.split_evenly((2 + usize::from(self.is_swept()), 1));
        let mut panels = panels.iter();
        if self.is_swept() {
            let panel = panels.next().context("there is a panel for rates")?;
            self.latency(panel).map_err(failed)?;
        }
        let panel = panels.next().context("there is a panel for steps")?;
        self.roofline(panel).map_err(failed)?;
        let panel = panels.next().context("there is a panel for the cache")?;
        self.cache(panel).map_err(failed)?;
        area.present().map_err(failed)
    }
}

impl Plot<'_> {
    /// Draws it into a file.
    ///
    /// # Errors
    /// An ending that is neither `.svg` nor `.png`, or a file that cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        picture::write(self, path)
    }

    /// Whether there are rates to draw latency by; one request alone has none.
    fn is_swept(&self) -> bool {
        let mut runs = self.sweeps.iter().flat_map(|(_, runs)| runs);
        runs.any(|run| run.offered_rate.is_some())
    }

    /// Normalized latency against the rate of requests.
    fn latency<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = |runs: &[Summary]| -> Vec<(f64, f64)> {
            runs.iter()
                .filter_map(|s| Some((s.offered_rate?, s.normalized_latency.mean * 1e3)))
                .collect()
        };
        let all = || self.sweeps.iter().flat_map(|(_, runs)| points(runs));
        let most_rate = all().map(|p| p.0).fold(0.0, f64::max);
        let least = all().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let most = all().map(|p| p.1).fold(least, f64::max);
        let (area, beside) = area.split_horizontally(PANEL.0 - LEGEND);
        // Logarithms: one slow policy leaves the others their differences.
        let mut chart = panel(&area)
            .caption(format!("Latency by rate: {}", self.title), (FONT, 20))
            .build_cartesian_2d(0.0..most_rate * 1.05, log_axis(least / 1.3, most * 1.3))?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("requests a second")
            .y_desc("ms a token, from arrival (mean)")
            .y_label_formatter(&|y| digits(*y))
            .draw()?;
        let mut lines = Vec::new();
        for (index, (policy, runs)) in self.sweeps.iter().enumerate() {
            let mark = Mark::new(index, self.sweeps.len());
            chart.draw_series(LineSeries::new(points(runs), mark.line()))?;
            chart.draw_series(points(runs).into_iter().map(|at| {
                EmptyElement::at(at) + PathElement::new(mark.corners(mark.radius()), mark.edge())
            }))?;
            lines.push((Sample::Marked(mark, mark.line()), policy.clone()));
        }
        legend(&beside, &lines)
    }

    /// Steps by operations a byte and operations a second, under what the device reaches.
    fn roofline<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let steps = || self.outcomes.iter().flat_map(|o| &o.steps);
        let least = steps().map(|s| s.intensity).fold(1.0, f64::min).max(1e-3) / 1.5;
        let most = steps().map(|s| s.intensity).fold(1e3, f64::max) * 1.5;
        let slowest = steps().map(|s| s.flops).fold(f64::INFINITY, f64::min);
        let flops = &self.hardware.flops;
        let peak = flops.gemm.max(flops.skinny).max(flops.gemv);
        let low = slowest.min(least * self.hardware.bandwidth) / 2.0;
        let (area, beside) = area.split_horizontally(PANEL.0 - LEGEND);
        let mut chart = panel(&area)
            .caption(self.named("Steps under the roof"), (FONT, 20))
            .build_cartesian_2d(
                log_axis(least, most),
                log_axis(low / 1e12, peak * 2.5 / 1e12),
            )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("operations a byte")
            .y_desc("TFLOP/s")
            .x_label_formatter(&|x| digits(*x))
            .y_label_formatter(&|y| digits(*y))
            .draw()?;
        let mut lines = Vec::new();
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let mark = Mark::new(index, self.outcomes.len());
            let dots = spread_out(&outcome.steps).into_iter().map(|(x, flops)| {
                EmptyElement::at((x, flops / 1e12)) + PathElement::new(mark.corners(4), mark.edge())
            });
            chart.draw_series(dots)?;
            lines.push((Sample::Dot(mark), outcome.policy.to_string()));
        }
        lines.push((Sample::Nothing, "a mark: one step, or".to_owned()));
        lines.push((Sample::Nothing, "several like it".to_owned()));
        for (rate, name) in roofs(self.hardware) {
            let roof = (0..200).map(|i| {
                let x = least * (most / least).powf(f64::from(i) / 199.0);
                (x, (x * self.hardware.bandwidth).min(rate) / 1e12)
            });
            chart.draw_series(LineSeries::new(roof, BLACK.stroke_width(1)))?;
            let text = TextStyle::from((FONT, 14).into_font());
            let text = text.pos(Pos::new(HPos::Right, VPos::Bottom));
            let at = (most / 1.05, rate * 1.04 / 1e12);
            chart.draw_series([Text::new(name, at, text)])?;
        }
        let text = TextStyle::from((FONT, 14).into_font());
        let text = text.pos(Pos::new(HPos::Left, VPos::Top));
        let at = least * 2.0;
        let at = (at, at * self.hardware.bandwidth * 0.75 / 1e12);
        chart.draw_series([Text::new("memory bandwidth", at, text)])?;
        legend(&beside, &lines)
    }

    /// Slots held, and slots with tokens in them, over time.
    fn cache<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let first = |o: &Outcome| o.steps.first().map_or(0.0, |s| s.begin);
        let last = |o: &Outcome| o.steps.last().map_or(0.0, |s| s.begin + s.seconds);
        let begin = self
            .outcomes
            .iter()
            .map(first)
            .fold(f64::INFINITY, f64::min);
        // A policy that takes much longer than the others shows only that it does.
        let shortest = self.outcomes.iter().map(last).fold(f64::INFINITY, f64::min);
        let longest = self.outcomes.iter().map(last).fold(1e-9, f64::max);
        let end = longest.min(begin + 1.5 * (shortest - begin));
        let share = |slots: usize, of: &Outcome| 100.0 * slots as f64 / of.kv_slots as f64;
        let shown = |of: &Outcome| of.steps.iter().take_while(|s| s.begin <= end).count();
        let most = self.outcomes.iter().flat_map(|o| {
            let steps = o.steps[..shown(o)].iter();
            steps.map(|s| share(s.kv_held.max(s.kv_used), o))
        });
        let most = most.fold(0.0, f64::max).max(1e-3);
        let (area, beside) = area.split_horizontally(PANEL.0 - LEGEND);
        let mut chart = panel(&area)
            .caption(self.named("Key/value slots"), (FONT, 20))
            .build_cartesian_2d(begin..end, 0.0..most * 1.05)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("seconds")
            .y_desc("% of the cache")
            .x_label_formatter(&|x| digits(*x))
            .y_label_formatter(&|y| digits(*y))
            .draw()?;
        let mut lines = Vec::new();
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let mark = Mark::new(index, self.outcomes.len());
            let steps = &outcome.steps[..shown(outcome)];
            let every = steps.len().div_ceil(MOST_POINTS).max(1);
            let steps = || steps.iter().step_by(every);
            let held = steps().map(|s| (s.begin, share(s.kv_held, outcome)));
            chart.draw_series(LineSeries::new(held, mark.pale()))?;
            let used: Vec<_> = steps()
                .map(|s| (s.begin, share(s.kv_used, outcome)))
                .collect();
            chart.draw_series(LineSeries::new(used.iter().copied(), mark.fine()))?;
            // Each policy's marks at times of its own, so that equal lines are seen to be several.
            let of = self.outcomes.len();
            let dots = (0..MARKS_OF_A_LINE).filter_map(|i| {
                let part = (i * of + index + 1) as f64 / (MARKS_OF_A_LINE * of + 1) as f64;
                let time = begin + (end - begin) * part;
                used.iter().copied().find(|at| at.0 >= time)
            });
            chart.draw_series(
                dots.map(|at| {
                    EmptyElement::at(at) + PathElement::new(mark.corners(6), mark.edge())
                }),
            )?;
            let name = outcome.policy.to_string();
            lines.push((Sample::Marked(mark, mark.fine()), name));
            if last(outcome) > end {
                let until = format!("ends at {} s", digits(last(outcome)));
                lines.push((Sample::Nothing, until));
            }
        }
        let black = |mix: f64, width| Sample::Line(BLACK.mix(mix).stroke_width(width));
        lines.push((black(0.8, 2), "slots with a token".to_owned()));
        lines.push((black(0.4, 1), "slots held for requests".to_owned()));
        legend(&beside, &lines)
    }

    /// A title with what was simulated and at which rate.
    fn named(&self, what: &str) -> String {
        format!("{what}: {}, {}", self.title, self.times)
    }
}

/// The roofs of a device, each rate once, with the steps it is that of.
fn roofs(hardware: &Hardware) -> Vec<(f64, String)> {
    let mut roofs: Vec<(f64, String)> = Vec::new();
    for (regime, name) in [
        (Regime::Gemv, "up to 8 tokens (gemv)"),
        (Regime::Skinny, "9 to 64 tokens (skinny)"),
        (Regime::Gemm, "more than 64 tokens (gemm)"),
    ] {
        let rate = hardware.flops.get(regime);
        match roofs.iter_mut().find(|roof| roof.0 == rate) {
            Some(roof) => roof.1 = format!("{}, {name}", roof.1),
            None => roofs.push((rate, format!("steps of {name}"))),
        }
    }
    roofs
}

/// Steps by operations a byte and a second, of each small field of the picture one, so that few dots
/// show all there is; at most [`MOST_DOTS`].
fn spread_out(steps: &[Step]) -> Vec<(f64, f64)> {
    let mut taken = BTreeSet::new();
    // About four pixels.
    let field = |value: f64| (value.max(1e-12).ln() * 20.0).round() as i64;
    let dots = steps.iter().map(|step| (step.intensity, step.flops));
    let dots: Vec<_> = dots
        .filter(|dot| taken.insert((field(dot.0), field(dot.1))))
        .collect();
    let every = dots.len().div_ceil(MOST_DOTS).max(1);
    dots.into_iter().step_by(every).collect()
}
