//! A run as a picture: how its times are distributed, and tokens a second over time. Computes no figure.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::summary::Summary;
use super::times::Times;
use crate::marks::{Mark, Sample, legend};
use crate::picture::{FONT, Picture, digits, log_axis, panel};

/// Pixels of a panel, and of the legend beside it.
const PANEL: (u32, u32) = (960, 420);
const LEGEND: u32 = 200;
/// Most points of a line.
const MOST_POINTS: usize = 400;
/// Most parts that the run is cut into for its rate, and pieces of answers that a part has in the mean at
/// least.
const MOST_PARTS: usize = 60;
const PIECES_A_PART: usize = 8;

/// A summary as a picture.
pub struct Plot<'a>(pub &'a Summary);

impl Picture for Plot<'_> {
    fn size(&self) -> (u32, u32) {
        (PANEL.0, PANEL.1 * 2)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> anyhow::Result<()> {
        let failed = |e: DrawingAreaErrorKind<B::ErrorType>| anyhow!("a plot failed: {e}");
        area.fill(&WHITE).map_err(failed)?;
        let (above, below) = area.split_vertically(PANEL.1);
        self.times(&above).map_err(failed)?;
        self.rate(&below).map_err(failed)?;
        area.present().map_err(failed)
    }
}

/// Of each time, the share of times that are no longer.
fn shares(times: &Times) -> Vec<(f64, f64)> {
    let n = times.0.len();
    let step = n.div_ceil(MOST_POINTS).max(1);
    let last = n.saturating_sub(1);
    let ranks = (0..n).step_by(step).chain((n > 0).then_some(last));
    let point = |rank: usize| (times.0[rank].max(0.01), (rank + 1) as f64 / n as f64);
    ranks.map(point).collect()
}

impl Plot<'_> {
    fn times<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let kinds = [
            ("TTFT", &self.0.ttft),
            ("TPOT", &self.0.tpot),
            ("ITL", &self.0.itl),
        ];
        let slos = self.0.slos();
        let lines = kinds.map(|(name, times)| (name, shares(times)));
        let all = || {
            lines
                .iter()
                .flat_map(|(_, points)| points.iter().map(|p| p.0))
        };
        let all = || all().chain(slos.iter().flatten().copied());
        let least = all().fold(f64::INFINITY, f64::min).min(1e6) / 1.5;
        let most = all().fold(least * 4.0, f64::max) * 1.5;
        let (area, beside) = area.split_horizontally(PANEL.0 - LEGEND);
        let mut chart = panel(&area)
            .caption("Times of requests", (FONT, 18))
            .build_cartesian_2d(log_axis(least, most), 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("ms")
            .y_desc("share that took no longer")
            .x_label_formatter(&|x| digits(*x))
            .y_label_formatter(&|y| digits(*y))
            .draw()?;
        let mut legends = Vec::new();
        for (index, (name, points)) in lines.iter().enumerate() {
            let mark = Mark::new(index, lines.len());
            chart.draw_series(LineSeries::new(points.iter().copied(), mark.fine()))?;
            legends.push((Sample::Line(mark.fine()), (*name).to_owned()));
            if let Some(slo) = slos.get(index).copied().flatten() {
                let line = [(slo, 0.0), (slo, 1.0)];
                chart.draw_series(LineSeries::new(line, mark.pale()))?;
                legends.push((Sample::Line(mark.pale()), format!("{name} to keep")));
            }
        }
        legend(&beside, &legends)
    }

    fn rate<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let times = &self.0.token_times;
        let end = times.last().copied().unwrap_or(1.0).max(1e-3);
        let parts = (times.len() / PIECES_A_PART).clamp(1, MOST_PARTS);
        let mut counts = vec![0.0_f64; parts];
        for time in times {
            let part = (time / end * parts as f64) as usize;
            counts[part.min(parts - 1)] += parts as f64 / end;
        }
        let most = counts.iter().copied().fold(1.0, f64::max) * 1.1;
        let (area, _) = area.split_horizontally(PANEL.0 - LEGEND);
        let mut chart = panel(&area)
            .caption("Pieces of answers a second", (FONT, 18))
            .build_cartesian_2d(0.0..end, 0.0..most)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("seconds")
            .y_desc("pieces a second")
            .x_label_formatter(&|x| digits(*x))
            .y_label_formatter(&|y| digits(*y))
            .draw()?;
        let width = end / parts as f64;
        let steps = counts.iter().enumerate().flat_map(|(part, count)| {
            [
                (part as f64 * width, *count),
                ((part + 1) as f64 * width, *count),
            ]
        });
        chart.draw_series(LineSeries::new(steps, Mark::new(0, 1).fine()))?;
        Ok(())
    }
}
