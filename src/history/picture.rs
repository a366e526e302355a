//! Series as a picture (SVG): a panel each, all over the same time, changes as dashed lines. Equal input gives equal text.

use std::fmt::{self, Write};

use jiff::tz::TimeZone;

use super::axis::{Form, Period, Range, value_ticks};
use super::{Mark, Metric, Point, Series, What};
use crate::timeline::escaped;

/// Sizes in pixels.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TITLE: f64 = 40.0;
const PANEL: f64 = 170.0;
const AXIS: f64 = 52.0;
const RADIUS: f64 = 2.5;
/// Of a label of the time axis, with the space to the next.
const TICK: f64 = 110.0;

const POINTS: &str = "#0072b2";
const GRID: &str = "#e0e0e0";

/// Of the line that marks a change; told apart by people who see colours differently.
const fn colour(what: What) -> &'static str {
    match what {
        What::Gpu => "#d55e00",
        What::Driver => "#cc79a7",
        What::Clocks => "#e69f00",
        What::Compiler => "#009e73",
        What::Code => "#56b4e9",
    }
}

/// The picture of these series of `metric`, its times in the zone `zone`.
pub fn picture(series: &[Series], metric: &Metric, zone: &TimeZone) -> String {
    let panels: Vec<&Series> = series.iter().filter(|series| !series.points.is_empty()).collect();
    let height = panels.len() as f64 * (TITLE + PANEL + AXIS) + 10.0;
    let mut sheet = Sheet(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    ));
    if let Some(period) = Period::of(panels.iter().copied()) {
        let mut top = TITLE;
        for series in panels {
            sheet.panel(series, metric, &period, zone, top);
            top += TITLE + PANEL + AXIS;
        }
    }
    sheet.0 + "</svg>\n"
}

/// The picture as far as it is written.
struct Sheet(String);

impl Sheet {
    fn write(&mut self, line: fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("a string takes every text");
        self.0.push('\n');
    }

    fn panel(&mut self, series: &Series, metric: &Metric, period: &Period, zone: &TimeZone, top: f64) {
        let values = series.points.iter().flat_map(|point| [point.lowest, point.highest]);
        let Some(range) = Range::around(values) else { return };
        let form = Form::of(metric, series.points.iter().map(|point| point.value));
        let x = |at| LEFT + period.place(at) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| top + (1.0 - range.place(value)) * PANEL;
        let unit = if form.symbol().is_empty() { String::new() } else { format!(", {}", form.symbol()) };
        let title = format!("{} {}: {metric}{unit}", series.id, series.shape);
        self.text(12.0, top - 18.0, "font-weight=\"bold\"", &title);
        for tick in value_ticks(&range) {
            self.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), GRID);
            self.text(LEFT - 8.0, y(tick) + 4.0, "text-anchor=\"end\"", &form.text(tick));
        }
        for (at, label) in period.ticks(zone, ((WIDTH - LEFT - RIGHT) / TICK) as usize) {
            self.line((x(at), top + PANEL), (x(at), top + PANEL + 5.0), "#000000");
            self.text(x(at), top + PANEL + 18.0, "text-anchor=\"middle\"", &label);
        }
        self.line((LEFT, top + PANEL), (WIDTH - RIGHT, top + PANEL), "#000000");
        for mark in &series.marks {
            self.mark(mark, x(mark.at), top);
        }
        let path: Vec<String> =
            series.points.iter().map(|point| format!("{:.2},{:.2}", x(point.taken_at), y(point.value))).collect();
        self.write(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{POINTS}\" stroke-opacity=\"0.4\"/>",
            path.join(" ")
        ));
        for point in &series.points {
            let at = x(point.taken_at);
            self.line((at, y(point.lowest)), (at, y(point.highest)), POINTS);
            self.dot(at, y(point.value), &about(point, &form, zone));
        }
    }

    /// A dashed line, its letter above it, and what changed where the pointer rests on either.
    fn mark(&mut self, mark: &Mark, x: f64, top: f64) {
        let title = escaped(&format!("{}: {} → {}", mark.what.name(), mark.from, mark.to));
        let (colour, letter, bottom) = (colour(mark.what), mark.what.letter(), top + PANEL);
        // Letters of what changed at once stand beside one another.
        let place = What::ALL.iter().position(|what| *what == mark.what).unwrap_or_default();
        let at = x + 9.0 * place as f64;
        self.write(format_args!(
            "<g><title>{title}</title><line x1=\"{x:.2}\" y1=\"{top:.2}\" x2=\"{x:.2}\" y2=\"{bottom:.2}\" stroke=\"{colour}\" \
             stroke-dasharray=\"4 3\"/><text x=\"{at:.2}\" y=\"{:.2}\" fill=\"{colour}\">{letter}</text></g>",
            top - 4.0
        ));
    }

    fn dot(&mut self, x: f64, y: f64, title: &str) {
        self.write(format_args!(
            "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{RADIUS}\" fill=\"{POINTS}\"><title>{}</title></circle>",
            escaped(title)
        ));
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), stroke: &str) {
        self.write(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{stroke}\"/>"
        ));
    }

    fn text(&mut self, x: f64, y: f64, attributes: &str, content: &str) {
        self.write(format_args!("<text x=\"{x:.2}\" y=\"{y:.2}\" {attributes}>{}</text>", escaped(content)));
    }
}

fn about(point: &Point, form: &Form, zone: &TimeZone) -> String {
    let at = point.taken_at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M %:z").to_string();
    format!("{} {}, {at}, session {}", form.text(point.value), form.symbol(), point.session)
}
