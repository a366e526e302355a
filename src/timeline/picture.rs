//! A timeline as a picture (SVG): a lane a stream, a colour a stage, an axis in microseconds. Equal input gives equal text.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::stream_name;
use crate::model::timeline::{Activity, StreamId};

/// One bar of the picture.
#[derive(Debug, Clone, Copy)]
pub struct Drawn<'t> {
    pub activity: &'t Activity,
    /// The stage that it belongs to, by position; what belongs to none is grey.
    pub stage: Option<usize>,
}

/// Sizes in pixels.
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 12.0;
const RIGHT: f64 = 20.0;
const LEGEND: f64 = 18.0;
const LANE: f64 = 30.0;
const BAR: f64 = 22.0;
const AXIS: f64 = 40.0;
/// Of a character, at the size of the labels.
const CHARACTER: f64 = 6.7;
/// The narrowest bar: what is shorter than a pixel stays visible.
const NARROWEST: f64 = 1.0;
/// The widest margin that names of lanes get.
const WIDEST: f64 = 340.0;

/// Fill and text, told apart by people who see colours differently.
const COLOURS: [(&str, &str); 7] = [
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#000000"),
    ("#009e73", "#000000"),
    ("#cc79a7", "#000000"),
    ("#56b4e9", "#000000"),
    ("#d55e00", "#000000"),
    ("#f0e442", "#000000"),
];
const OTHER: (&str, &str) = ("#9e9e9e", "#000000");
const GRID: &str = "#e0e0e0";

/// The picture of these activities, under `title`. Times count from the first start.
pub fn picture(title: &str, stages: &[String], drawn: &[Drawn<'_>]) -> String {
    let lanes = lanes(drawn);
    let keys = legend(stages, drawn.iter().any(|bar| bar.stage.is_none()));
    let frame = Frame::of(drawn, &lanes, keys.last().map_or(0, |key| key.row + 1));
    let height = frame.bottom + AXIS;
    let mut sheet = Sheet(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    ));
    sheet.text(MARGIN, 20.0, "font-weight=\"bold\"", title);
    for key in keys {
        let y = 32.0 + key.row as f64 * LEGEND;
        sheet.bar(key.x, y, 12.0, 12.0, colours(key.stage).0, key.name);
        sheet.text(key.x + 17.0, y + 10.0, "", key.name);
    }
    sheet.axis(&frame);
    let mut top = frame.top;
    for lane in &lanes {
        sheet.text(MARGIN, top + LANE / 2.0 + 4.0, "", &lane.name);
        for bars in &lane.rows {
            bars.iter().for_each(|bar| sheet.draw(bar, stages, &frame, top + (LANE - BAR) / 2.0));
            top += LANE;
        }
        sheet.line((MARGIN, top), (WIDTH - RIGHT, top));
    }
    sheet.0 + "</svg>\n"
}

/// Where the lanes lie, and how times become places.
struct Frame {
    left: f64,
    top: f64,
    bottom: f64,
    start_ns: u64,
    span_us: f64,
}

impl Frame {
    fn of(drawn: &[Drawn<'_>], lanes: &[Lane<'_>], legend_rows: usize) -> Frame {
        let start_ns = drawn.iter().map(|bar| bar.activity.start_ns).min().unwrap_or(0);
        let end_ns = drawn.iter().map(|bar| bar.activity.end_ns).max().unwrap_or(0);
        let longest = lanes.iter().map(|lane| width_of(&lane.name)).fold(0.0, f64::max);
        let top = 46.0 + legend_rows as f64 * LEGEND;
        let rows: usize = lanes.iter().map(|lane| lane.rows.len()).sum();
        Frame {
            left: (2.0 * MARGIN + longest).min(WIDEST),
            top,
            bottom: top + rows as f64 * LANE,
            start_ns,
            span_us: (end_ns - start_ns).max(1) as f64 / 1e3,
        }
    }

    fn pixels(&self, us: f64) -> f64 {
        us / self.span_us * (WIDTH - self.left - RIGHT)
    }
}

fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// A stream, with as many rows as things ran on it at once.
struct Lane<'d> {
    name: String,
    rows: Vec<Vec<Drawn<'d>>>,
}

fn lanes<'d>(drawn: &[Drawn<'d>]) -> Vec<Lane<'d>> {
    let streams: BTreeSet<StreamId> = drawn.iter().map(|bar| bar.activity.stream_id()).collect();
    let streams: Vec<StreamId> = streams.into_iter().collect();
    let lane = |&stream: &StreamId| {
        let mut bars: Vec<_> = drawn.iter().copied().filter(|bar| bar.activity.stream_id() == stream).collect();
        bars.sort_by_key(|bar| (bar.activity.start_ns, bar.activity.end_ns));
        let mut rows: Vec<Vec<Drawn<'_>>> = Vec::new();
        for bar in bars {
            let free =
                |row: &&mut Vec<Drawn<'_>>| row.last().is_none_or(|last| last.activity.end_ns <= bar.activity.start_ns);
            match rows.iter_mut().find(free) {
                Some(row) => row.push(bar),
                None => rows.push(vec![bar]),
            }
        }
        Lane { name: stream_name(stream, &streams), rows }
    };
    streams.iter().map(lane).collect()
}

fn colours(stage: Option<usize>) -> (&'static str, &'static str) {
    stage.map_or(OTHER, |stage| COLOURS[stage % COLOURS.len()])
}

/// An entry of the legend.
struct KeyEntry<'s> {
    stage: Option<usize>,
    name: &'s str,
    row: usize,
    x: f64,
}

/// The stages, in as many rows as they need.
fn legend(stages: &[String], others: bool) -> Vec<KeyEntry<'_>> {
    let named = stages.iter().enumerate().map(|(stage, name)| (Some(stage), name.as_str()));
    let (mut row, mut x) = (0, MARGIN);
    let place = |(stage, name)| {
        let width = 17.0 + width_of(name);
        if x > MARGIN && x + width > WIDTH - RIGHT {
            (row, x) = (row + 1, MARGIN);
        }
        let entry = KeyEntry { stage, name, row, x };
        x += width + 18.0;
        entry
    };
    named.chain(others.then_some((None, "other"))).map(place).collect()
}

/// The picture as far as it is written.
struct Sheet(String);

impl Sheet {
    fn write(&mut self, line: fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("a string takes every text");
        self.0.push('\n');
    }

    fn draw(&mut self, bar: &Drawn<'_>, stages: &[String], frame: &Frame, y: f64) {
        let Activity { name, start_ns, .. } = bar.activity;
        let (from_us, duration_us) =
            ((start_ns - frame.start_ns) as f64 / 1e3, bar.activity.duration_ns() as f64 / 1e3);
        let (x, width) = (frame.left + frame.pixels(from_us), frame.pixels(duration_us).max(NARROWEST));
        let label = bar.stage.and_then(|stage| stages.get(stage)).unwrap_or(name);
        let (fill, ink) = colours(bar.stage);
        self.bar(x, y, width, BAR, fill, &format!("{label}: {name}, {duration_us:.3} us, from {from_us:.3} us"));
        let labels = [format!("{label} {duration_us:.1} us"), label.clone()];
        if let Some(fits) = labels.iter().find(|label| width_of(label) + 8.0 <= width) {
            self.text(x + 4.0, y + BAR / 2.0 + 4.0, &format!("fill=\"{ink}\""), fits);
        }
    }

    fn axis(&mut self, frame: &Frame) {
        let step = step(frame.span_us);
        let digits = (-step.log10().floor()).clamp(0.0, 4.0) as usize;
        let ticks = (frame.span_us / step).floor() as u32;
        for tick in 0..=ticks {
            let at_us = f64::from(tick) * step;
            let x = frame.left + frame.pixels(at_us);
            self.line((x, frame.top - 6.0), (x, frame.bottom + 5.0));
            self.text(x, frame.bottom + 18.0, "text-anchor=\"middle\"", &format!("{at_us:.digits$}"));
        }
        let middle = frame.left + frame.pixels(frame.span_us / 2.0);
        self.text(middle, frame.bottom + 34.0, "text-anchor=\"middle\"", "us");
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, title: &str) {
        self.write(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{fill}\"><title>{}</title></rect>",
            escaped(title)
        ));
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.write(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{GRID}\"/>"
        ));
    }

    fn text(&mut self, x: f64, y: f64, attributes: &str, content: &str) {
        let space = if attributes.is_empty() { "" } else { " " };
        self.write(format_args!("<text x=\"{x:.2}\" y=\"{y:.2}\"{space}{attributes}>{}</text>", escaped(content)));
    }
}

/// Between ticks: 1, 2 or 5 times a power of ten, for at most ten of them.
pub(crate) fn step(span: f64) -> f64 {
    let rough = span / 10.0;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(10.0 * power)
}

/// Text that XML takes: markup spelled out, and what it does not allow at all replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            control if control.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&control) => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::kernel;
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (span_us, wanted) in [(1457.0, 200.0), (1000.0, 100.0), (10.1, 2.0), (0.9, 0.1), (45.0, 5.0)] {
            let found = step(span_us);
            assert!((found / wanted - 1.0).abs() < 1e-12, "{span_us}: {found}");
            assert!(span_us / found <= 10.0 + 1e-9);
        }
    }

    #[test]
    fn names_are_text_and_no_markup() {
        let activity = kernel("f<int>(\"a\" & 'b')\u{1}", 7, 1_000, 900_000);
        let svg = picture("<script>", &[], &[Drawn { activity: &activity, stage: None }]);
        assert!(
            svg.contains("&lt;script&gt;") && svg.contains("f&lt;int&gt;(&quot;a&quot; &amp; 'b')\u{fffd}"),
            "{svg}"
        );
        assert!(!svg.contains("<script") && !svg.contains("f<int"));
    }

    #[test]
    fn what_runs_at_once_on_one_stream_has_rows_of_its_own() {
        let activities =
            [kernel("a", 7, 10, 30), kernel("b", 7, 20, 40), kernel("c", 7, 30, 50), kernel("d", 8, 10, 20)];
        let drawn: Vec<_> = activities.iter().map(|activity| Drawn { activity, stage: None }).collect();
        let rows: Vec<_> = lanes(&drawn).iter().map(|lane| (lane.name.clone(), lane.rows.len())).collect();
        assert_eq!(rows, [("stream 7".to_owned(), 2), ("stream 8".to_owned(), 1)]);
    }

    #[test]
    fn a_long_legend_has_several_rows() {
        let stages: Vec<String> = (0..40).map(|stage| format!("stage number {stage}")).collect();
        let keys = legend(&stages, true);
        assert!(keys.iter().all(|key| key.x + 17.0 + width_of(key.name) <= WIDTH - RIGHT));
        assert_eq!(keys.last().map(|key| (key.name, key.row > 1)), Some(("other", true)));
    }

    #[test]
    fn an_empty_picture_is_one() {
        assert!(picture("nothing", &[], &[]).ends_with("</svg>\n"));
    }

    proptest! {
        #[test]
        fn bars_stay_within_the_picture(ran in prop::collection::vec((1_u64..u64::MAX / 2, 0_u64..1 << 40, 0_u64..3), 1..8)) {
            let activities: Vec<_> = ran.iter().map(|&(at, ns, stream)| kernel("a", stream, at, at + ns)).collect();
            let drawn: Vec<_> = activities.iter().map(|activity| Drawn { activity, stage: Some(0) }).collect();
            let svg = picture("", &["a".to_owned()], &drawn);
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"));
            for bar in svg.lines().filter(|line| line.contains("<title>")) {
                let number = |name: &str| {
                    let rest = bar.split_once(&format!(" {name}=\""))?.1;
                    rest.split_once('"')?.0.parse::<f64>().ok()
                };
                let (x, width) = (number("x").expect("a place"), number("width").expect("a width"));
                prop_assert!(x >= MARGIN - 0.01 && x + width <= WIDTH - RIGHT + NARROWEST + 0.01, "{bar}");
            }
        }
    }
}
