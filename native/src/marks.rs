//! How what is compared is told apart in plots: a colour, an open mark and a width each, and the legend beside
//! a panel. Knows no figures.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::picture::FONT;

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

/// Corners of open marks, in tenths of a radius.
const SHAPES: [&[(i32, i32)]; 5] = [
    // Nearly a circle.
    &[
        (10, 0),
        (7, 7),
        (0, 10),
        (-7, 7),
        (-10, 0),
        (-7, -7),
        (0, -10),
        (7, -7),
        (10, 0),
    ],
    &[(9, 9), (-9, 9), (-9, -9), (9, -9), (9, 9)],
    &[(0, -12), (11, 8), (-11, 8), (0, -12)],
    &[(0, 13), (13, 0), (0, -13), (-13, 0), (0, 13)],
    &[(0, 12), (11, -8), (-11, -8), (0, 12)],
];

/// Pixels of a line of a legend.
const LINE: i32 = 22;

/// How one of several is drawn. Those drawn first are wider, so that what lies on them leaves
/// a rim to be seen.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    index: usize,
    above: u32,
}

impl Mark {
    /// That of one, of so many.
    pub fn new(index: usize, of: usize) -> Self {
        let above = of.saturating_sub(index + 1).min(4) as u32;
        Self { index, above }
    }

    fn colour(self) -> RGBColor {
        COLOURS[self.index % COLOURS.len()]
    }

    /// Of its lines.
    pub fn line(self) -> ShapeStyle {
        self.colour().mix(0.8).stroke_width(2 + self.above)
    }

    /// Of lines with many corners, which would show as thorns of wider ones.
    pub fn fine(self) -> ShapeStyle {
        self.colour().mix(0.8).stroke_width(2)
    }

    /// Of lines that accompany those.
    pub fn pale(self) -> ShapeStyle {
        self.colour().mix(0.4).stroke_width(1)
    }

    /// Of the edges of its marks.
    pub fn edge(self) -> ShapeStyle {
        self.colour().mix(0.75).stroke_width(1)
    }

    /// Corners of its mark around a point, pixels.
    pub fn corners(self, radius: i32) -> Vec<(i32, i32)> {
        let shape = SHAPES[self.index % SHAPES.len()];
        let scaled = |at: i32| (at * radius) / 10;
        shape.iter().map(|&(x, y)| (scaled(x), scaled(y))).collect()
    }

    /// Radius of marks that may lie upon each other, pixels.
    pub fn radius(self) -> i32 {
        4 + 2 * self.above as i32
    }
}

/// What stands before a line of a legend.
#[derive(Clone, Copy, Debug)]
pub enum Sample {
    /// A line of this style with a mark on it.
    Marked(Mark, ShapeStyle),
    /// A mark.
    Dot(Mark),
    /// A line.
    Line(ShapeStyle),
    /// Nothing.
    Nothing,
}

/// Draws a legend, from the top.
///
/// # Errors
/// What a backend says.
pub fn legend<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    lines: &[(Sample, String)],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let text = TextStyle::from((FONT, 15).into_font());
    for (row, (sample, label)) in lines.iter().enumerate() {
        let y = 56 + row as i32 * LINE;
        let stroke = |style| PathElement::new(vec![(4, y), (30, y)], style);
        let mark =
            |mark: Mark| EmptyElement::at((17, y)) + PathElement::new(mark.corners(5), mark.edge());
        match *sample {
            Sample::Marked(of, style) => {
                area.draw(&stroke(style))?;
                area.draw(&mark(of))?;
            }
            Sample::Dot(of) => area.draw(&mark(of))?,
            Sample::Line(style) => area.draw(&stroke(style))?,
            Sample::Nothing => {}
        }
        let x = if matches!(sample, Sample::Nothing) {
            4
        } else {
            38
        };
        area.draw(&Text::new(label.clone(), (x, y - 7), text.clone()))?;
    }
    Ok(())
}
