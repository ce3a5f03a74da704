//! The roof of the device as it was measured, with prefill, decode and the matrix products of the model
//! under it. Computes nothing.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ceilings::Product;
use super::figures::Figures;
use crate::marks::{Mark, Sample, legend};
use crate::picture::{FONT, Picture, digits, log_axis, panel};

/// Figures as a picture.
pub struct Roofline<'a>(pub &'a Figures);

const SIZE: (u32, u32) = (1080, 560);
const LEGEND: u32 = 300;

impl Picture for Roofline<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> anyhow::Result<()> {
        let failed = |e: DrawingAreaErrorKind<B::ErrorType>| anyhow!("a plot failed: {e}");
        area.fill(&WHITE).map_err(failed)?;
        self.roofline(area).map_err(failed)?;
        area.present().map_err(failed)
    }
}

/// Operations a byte, and operations a second.
type At = (f64, f64);

impl Roofline<'_> {
    fn points(&self) -> Vec<(String, Vec<At>)> {
        let f = self.0;
        let product = |p: &Product| (p.flops / p.bandwidth, p.flops);
        let step = |tokens: f64, rate: f64| {
            let flops = f.needs[1] / f.prefill[0].0 as f64 * tokens;
            (flops / f.needs[0], flops * rate / tokens)
        };
        let prefill = (f.needs[1] / f.needs[0], f.prefill_flops());
        let mut points = vec![
            (
                "decode, one request".to_owned(),
                vec![step(1.0, f.decode_tok_s)],
            ),
            (
                format!("prefill of {} tokens", f.prefill[0].0),
                vec![prefill],
            ),
            (
                "products of a decode step".to_owned(),
                f.ceilings.gemv.iter().map(product).collect(),
            ),
            (
                "products of a prefill step".to_owned(),
                f.ceilings.gemm.iter().map(product).collect(),
            ),
        ];
        for &(together, rate) in &f.parallel {
            let name = format!("decode, {together} requests");
            points.push((name, vec![step(together as f64, rate)]));
        }
        points
    }

    fn roofline<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let f = self.0;
        let points = self.points();
        let all = || points.iter().flat_map(|(_, at)| at.iter());
        let least = all().map(|p| p.0).fold(1.0, f64::min) / 2.0;
        let most = all().map(|p| p.0).fold(100.0, f64::max) * 2.0;
        let reads = f.ceilings.best_gemv().max(f.ceilings.rates.copy);
        let slowest = all().map(|p| p.1).fold(least * reads, f64::min);
        let peak = f.ceilings.best_flops();
        let (area, beside) = area.split_horizontally(SIZE.0 - LEGEND);
        let title = format!("Under the roof: {}", f.device);
        let mut chart = panel(&area).caption(title, (FONT, 18)).build_cartesian_2d(
            log_axis(least, most),
            log_axis(slowest / 2e9, peak * 2.5 / 1e9),
        )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 17))
            .x_desc("operations a byte")
            .y_desc("GFLOP/s")
            .x_label_formatter(&|x| digits(*x))
            .y_label_formatter(&|y| digits(*y))
            .draw()?;
        let text = |h, v| TextStyle::from((FONT, 14).into_font()).pos(Pos::new(h, v));
        for (rate, name) in [
            (f.ceilings.rates.fma, "multiply-adds alone"),
            (peak, "most seen"),
        ] {
            let roof = (0..200).map(|i| {
                let x = least * (most / least).powf(f64::from(i) / 199.0);
                (x, (x * f.ceilings.rates.copy).min(rate) / 1e9)
            });
            chart.draw_series(LineSeries::new(roof, BLACK.stroke_width(1)))?;
            let at = (most / 1.05, rate * 1.05 / 1e9);
            chart.draw_series([Text::new(name, at, text(HPos::Right, VPos::Bottom))])?;
            if f.ceilings.rates.fma == peak {
                break;
            }
        }
        let at = least * 1.3;
        let at = (at, at * f.ceilings.rates.copy * 0.7 / 1e9);
        chart.draw_series([Text::new("a copy's bytes", at, text(HPos::Left, VPos::Top))])?;
        let mut lines = Vec::new();
        for (index, (name, at)) in points.iter().enumerate() {
            let mark = Mark::new(index, points.len());
            chart.draw_series(at.iter().map(|&(x, y)| {
                EmptyElement::at((x, y / 1e9)) + PathElement::new(mark.corners(5), mark.edge())
            }))?;
            lines.push((Sample::Dot(mark), name.clone()));
        }
        legend(&beside, &lines)
    }
}
