//! Variables in the texts of hosts: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${input:id}`,
//! `${workspaceFolder}`, `${userHome}`.

use std::path::Path;

/// Place of the host's file, for variables that are directories.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Directory of the project, if known.
    pub(super) folder: Option<&'a Path>,
    pub(super) home: Option<&'a str>,
}

/// One piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// A variable of the environment.
    Variable {
        name: String,
        default: Option<String>,
    },
    /// An input that the host prompts its user for.
    Input(String),
    /// Anything else in `${..}`.
    Unknown(String),
}

/// Splits a text at its variables; directories are replaced.
pub(super) fn pieces(text: &str, place: &Place<'_>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, inside, after)) = next(rest) {
        push_text(&mut pieces, before);
        let cut = piece(inside, place);
        if let Piece::Text(text) = &cut {
            push_text(&mut pieces, text);
        } else {
            pieces.push(cut);
        }
        rest = after;
    }
    push_text(&mut pieces, rest);
    pieces
}

/// The text before, in and after the first `${..}`.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${")?;
    let (inside, after) = rest.split_once('}')?;
    Some((before, inside, after))
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if let Some(Piece::Text(last)) = pieces.last_mut() {
        last.push_str(text);
    } else if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

fn piece(inside: &str, place: &Place<'_>) -> Piece {
    let known = match inside {
        "workspaceFolder" => place.folder.map(|folder| folder.display().to_string()),
        "userHome" | "env:HOME" | "HOME" => place.home.map(str::to_owned),
        "pathSeparator" | "/" => Some("/".to_owned()),
        _ => None,
    };
    if let Some(text) = known {
        return Piece::Text(text);
    }
    if let Some(id) = inside.strip_prefix("input:") {
        return Piece::Input(id.to_owned());
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inside.strip_prefix("env:").unwrap_or(inside), None),
    };
    let shell = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let place = ["workspaceFolder", "userHome"].contains(&name);
    if place || name.is_empty() || !name.chars().all(shell) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Piece::Unknown(inside.to_owned());
    }
    Piece::Variable { name: name.to_owned(), default }
}

/// The text for a key that cannot hold variables; defaults are replaced.
///
/// # Errors
/// A sentence that tells the user which text replaces the variables.
pub(super) fn plain(text: &str, place: &Place<'_>) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces(text, place) {
        match piece {
            Piece::Text(text) | Piece::Variable { default: Some(text), .. } => out.push_str(&text),
            Piece::Variable { name, .. } => return Err(variable_here(&name)),
            Piece::Input(id) => return Err(variable_here(&format!("input:{id}"))),
            Piece::Unknown(inside) => return Err(variable_here(&inside)),
        }
    }
    Ok(out)
}

fn variable_here(inside: &str) -> String {
    format!("`${{{inside}}}` is not replaced here; write the value in its place")
}
