//! The cost of a call as a picture.

use std::fmt::Write;

use crate::budget::{CALL_C16, FLOOR, HEADEND, MODERN_C16, NGINX};
use crate::table::{CPU, Results};

const WIDTH: f64 = 720.0;
/// Width of the column of names.
const NAMES: f64 = 250.0;
const BAR: f64 = 26.0;
/// Distance from one bar to the next.
const STEP: f64 = 40.0;
const TITLE: f64 = 44.0;

/// Draws the processor time of a call as bars, as multiples of the floor's, readable on light and
/// on dark pages. `None` without the figures of the gateway.
pub(crate) fn svg(results: &Results, machine: &str) -> Option<String> {
    let of = |row, target| results.ratio(row, (target, FLOOR), CPU);
    let bars = [
        ("a proxy that parses nothing", of(CALL_C16, FLOOR), "#8a94a6"),
        ("nginx", of(CALL_C16, NGINX), "#8a94a6"),
        ("headend, clients with sessions", Some(of(CALL_C16, HEADEND)?), "#3b7dd8"),
        ("headend, clients without", of(MODERN_C16, HEADEND), "#3b7dd8"),
    ];
    let bars: Vec<_> = bars.into_iter().filter_map(|(name, value, colour)| Some((name, value?, colour))).collect();
    let most = bars.iter().map(|(_, value, _)| *value).fold(1.0, f64::max);
    let height = TITLE + STEP * f64::from(u32::try_from(bars.len()).unwrap_or(u32::MAX)) + 28.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="15" role="img">
<style>text {{ fill: #24292f }} .small {{ font-size: 12px; opacity: .75 }} @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} }}</style>
<title>Processor time of a tool call, as a multiple of a bare proxy's</title>
<text x="0" y="20">Processor time of a tool call, as a multiple of a bare proxy's</text>
"#
    );
    let mut top = TITLE;
    for (name, value, colour) in bars {
        let (length, middle) = ((WIDTH - NAMES - 70.0) * value / most, top + BAR * 0.7);
        let end = NAMES + length + 8.0;
        let written = writeln!(
            svg,
            r#"<text x="0" y="{middle:.0}">{name}</text><rect x="{NAMES}" y="{top:.0}" width="{length:.0}" height="{BAR}" rx="3" fill="{colour}"/><text x="{end:.0}" y="{middle:.0}">{value:.2}</text>"#
        );
        written.expect("invariant: writing to a string does not fail");
        top += STEP;
    }
    let machine = machine.replace('&', "&amp;").replace('<', "&lt;");
    let written =
        writeln!(svg, r#"<text class="small" x="0" y="{:.0}">16 calls in flight; {machine}</text></svg>"#, top + 10.0);
    written.expect("invariant: writing to a string does not fail");
    Some(svg)
}
