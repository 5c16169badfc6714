//! Serves the console's built-in files, and its icon with the number of open approvals.

use http::Response;

use super::reply;
use crate::listener::body::ReplyBody;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";
/// From this number on the icon shows `99+`.
const MANY: u8 = 100;

/// Returns the response for a path under `/static/`; `None` if there is no such file.
pub(super) fn find(path: &str) -> Option<Response<ReplyBody>> {
    let name = path.strip_prefix("/static/")?;
    Some(match name {
        "console.css" => reply::file("text/css; charset=utf-8", include_str!("console.css")),
        "calls.css" => reply::file("text/css; charset=utf-8", include_str!("calls.css")),
        "console.js" => reply::file(SCRIPT, include_str!("script/console.js")),
        "alert.js" => reply::file(SCRIPT, include_str!("script/alert.js")),
        "gone.js" => reply::file(SCRIPT, include_str!("script/gone.js")),
        "parts.js" => reply::file(SCRIPT, include_str!("script/parts.js")),
        "questions.js" => reply::file(SCRIPT, include_str!("script/questions.js")),
        "stream.js" => reply::file(SCRIPT, include_str!("script/stream.js")),
        "icon.svg" => reply::file(ICON, include_str!("icon.svg")),
        _ => reply::file(ICON, numbered(name.strip_prefix("icon/")?.strip_suffix(".svg")?)?),
    })
}

/// Draws the icon with a number of open approvals, from 1 to [`MANY`]. Drawn by the server, so that
/// pages need no images but the console's own.
fn numbered(number: &str) -> Option<String> {
    let count: u8 = number.parse().ok().filter(|count| (1..=MANY).contains(count))?;
    let text = if count == MANY { "99+".to_owned() } else { count.to_string() };
    let size = match text.len() {
        1 => 24,
        2 => 20,
        _ => 15,
    };
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 32 32\"><rect width=\"32\" height=\"32\" rx=\"8\" fill=\"#a81f1a\"/>\
         <text x=\"16\" y=\"16\" dy=\".36em\" text-anchor=\"middle\" font-family=\"system-ui, sans-serif\" font-weight=\"700\" font-size=\"{size}\" \
         fill=\"#fff\">{text}</text></svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_icon_has_a_number_from_one_to_many() {
        for (number, text) in
            [("1", Some(">1<")), ("99", Some(">99<")), ("100", Some(">99+<")), ("0", None), ("101", None)]
        {
            let icon = numbered(number);
            assert_eq!(
                icon.as_ref().map(|icon| text.is_some_and(|text| icon.contains(text))),
                text.map(|_| true),
                "{number}"
            );
        }
        for strange in ["-1", "x", "1<", "", "1/../2"] {
            assert!(numbered(strange).is_none(), "{strange}");
        }
    }
}
