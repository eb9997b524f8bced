//! The picture: how many times better each figure is than Go's.

use std::path::Path;

use plotters::prelude::*;

use crate::Failure;
use crate::rounds::{Measured, median};

const ROW: i32 = 26;
const LEFT: i32 = 380;
const WIDTH: i32 = 900;

/// One bar per figure, on a logarithmic scale from a half to a thousand.
pub(crate) fn draw(figures: &[Measured], path: &Path) -> Result<(), Failure> {
    let height = ROW * (i32::try_from(figures.len())? + 2);
    let area = SVGBackend::new(path, (WIDTH.cast_unsigned(), height.cast_unsigned())).into_drawing_area();
    area.fill(&WHITE)?;
    let text = ("sans-serif", 13).into_font().color(&BLACK);
    let (low, high) = (0.5_f64.ln(), 1_000_f64.ln());
    let x = |times: f64| {
        let share = ((times.ln() - low) / (high - low)).clamp(0.0, 1.0);
        LEFT + (share * f64::from(WIDTH - LEFT - 70)) as i32
    };
    for times in [1.0, 3.0, 10.0, 30.0, 100.0, 300.0] {
        let at = x(times);
        area.draw(&PathElement::new(
            [(at, ROW), (at, height - ROW / 2)],
            BLACK.mix(if times == 1.0 { 0.8 } else { 0.15 }),
        ))?;
        area.draw(&Text::new(format!("{times}x"), (at - 8, 8), text.clone()))?;
    }
    for (row, figure) in figures.iter().enumerate() {
        let top = ROW * (i32::try_from(row)? + 1) + 4;
        let times = median(&figure.ratios);
        area.draw(&Text::new(figure.name, (8, top + 2), text.clone()))?;
        let color = if figure.must_reached { RGBColor(46, 125, 50) } else { RGBColor(198, 40, 40) };
        let (from, to) = (x(1.0).min(x(times)), x(1.0).max(x(times)));
        area.draw(&Rectangle::new([(from, top), (to.max(from + 1), top + ROW - 10)], color.filled()))?;
        area.draw(&Text::new(format!("{times:.1}x"), (to + 6, top + 2), text.clone()))?;
    }
    area.present()?;
    Ok(())
}
