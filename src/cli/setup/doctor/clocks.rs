//! Checks the clock of this machine against those of servers and against the last write to the
//! store.

use std::path::Path;
use std::time::{Duration, SystemTime};

use http::header::DATE;
use http::{Request, Uri};
use http_body_util::Full;
use time::OffsetDateTime;
use url::Url;

use super::finding::DoctorFindings;
use crate::config::{Config, ProxySettings, UpstreamSettings, UpstreamTarget};
use crate::upstream::net::client::HttpClient;

/// Tolerated difference: tokens and certificates are judged by minutes.
const MOST: Duration = Duration::from_secs(300);
/// Time for the answer of a server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most servers that are asked for their time.
const ASKED: usize = 4;
/// The next step for a wrong clock.
const NEXT: &str = "set the clock: `sudo timedatectl set-ntp true`";

/// Adds a finding about the clock.
pub(super) fn look(config: &Config, state: Option<&Path>, found: &mut DoctorFindings) {
    let now = SystemTime::from(OffsetDateTime::now_utc());
    let written = state.and_then(|dir| std::fs::metadata(dir.join("headend.db")).ok()?.modified().ok());
    if let Some(ahead) = written.and_then(|written| written.duration_since(now).ok()).filter(|ahead| *ahead > MOST) {
        let what = format!("it is {} behind the last write to the state directory", told(ahead));
        return found.problem("clock", what, NEXT);
    }
    let urls = config.upstreams.iter().filter_map(|spec| match &spec.target {
        UpstreamTarget::Http { url, .. } => Some((spec, url)),
        UpstreamTarget::Stdio { .. } => None,
    });
    let urls: Vec<(&UpstreamSettings, &Url)> = urls.take(ASKED).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), false) = (runtime, urls.is_empty()) else { return };
    let asked = runtime.block_on(futures_util::future::join_all(urls.iter().map(|(spec, url)| date(&spec.proxy, url))));
    runtime.shutdown_background();
    let off = |theirs: SystemTime| now.duration_since(theirs).unwrap_or_else(|ahead| ahead.duration());
    let mut known = urls.iter().zip(asked).filter_map(|((spec, _), date)| Some((&spec.name, off(date?)))).peekable();
    if known.peek().is_none() {
        return;
    }
    // A single server may be wrong, so the one with the smallest difference decides.
    match known.min_by_key(|(_, off)| *off) {
        Some((name, off)) if off > MOST => {
            found.problem("clock", format!("it is {} off the clock of `{name}`", told(off)), NEXT);
        }
        _ => found.ok("clock", "as servers have it"),
    }
}

/// Asks a server for its time. The request carries no credentials; any answer has a date.
async fn date(proxy: &ProxySettings, url: &Url) -> Option<SystemTime> {
    let client = HttpClient::new().by(proxy, url).ok()?;
    let uri = url.as_str().parse::<Uri>().ok()?;
    client.prepare(&uri).ok()?;
    let request = Request::head(uri).body(Full::default()).ok()?;
    let response = tokio::time::timeout(PATIENCE, client.request(request)).await.ok()?.ok()?;
    httpdate::parse_http_date(response.headers().get(DATE)?.to_str().ok()?).ok()
}

/// Describes a difference in minutes, hours or days.
fn told(off: Duration) -> String {
    match off.as_secs() {
        seconds @ 0..7_200 => format!("{} minutes", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} hours", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
