//! Variables in the texts of hosts: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${input:id}`,
//! `$VAR`, `{env:VAR}`, `${{ secrets.VAR }}`, and directories such as `${workspaceFolder}`.

use std::ops::Range;
use std::path::Path;

/// The notation that a host replaces. If a host replaces none, `${` is plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableSyntax {
    None,
    /// `${VAR}`.
    Braces,
    /// `${VAR}` and `$VAR`.
    Shell,
    /// `{env:VAR}` and `{file:path}`.
    Curly,
    /// `${{ secrets.VAR }}` and `${VAR}`.
    Double,
}

/// The directories that variables of a host's file stand for, and the file's notation.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateContext<'a> {
    /// Directory of the project, if known.
    pub(super) folder: Option<&'a Path>,
    /// Home directory of the user, if known.
    pub(super) home: Option<&'a str>,
    pub(super) syntax: VariableSyntax,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePiece {
    Text(String),
    /// A variable of the environment.
    Variable {
        name: String,
        default: Option<String>,
    },
    /// An input that the host asks its user for, or a secret that the host keeps.
    Input(String),
    /// The content of the file at this path.
    File(String),
    /// Any other text in `${..}`.
    Unknown(String),
}

/// Splits a text at its variables; variables that are directories are replaced.
pub(super) fn pieces(text: &str, place: &TemplateContext<'_>) -> Vec<TemplatePiece> {
    let mut pieces = Vec::new();
    let mut at = 0;
    for (range, cut) in variables(text, place) {
        push_text(&mut pieces, text.get(at..range.start).unwrap_or_default());
        if let TemplatePiece::Text(text) = &cut {
            push_text(&mut pieces, text);
        } else {
            pieces.push(cut);
        }
        at = range.end;
    }
    push_text(&mut pieces, text.get(at..).unwrap_or_default());
    pieces
}

/// Finds the variables of a text, with their ranges in bytes.
pub(super) fn variables(text: &str, place: &TemplateContext<'_>) -> Vec<(Range<usize>, TemplatePiece)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text.get(at..).and_then(|rest| rest.find(['$', '{'])).map(|start| at + start) {
        let rest = text.get(start..).unwrap_or_default();
        let one = one(rest, place);
        at = start + one.as_ref().map_or(1, |(length, _)| *length);
        found.extend(one.map(|(_, piece)| (start..at, piece)));
    }
    found
}

/// Reads the variable at the beginning of a text; returns it with its length in bytes.
fn one(rest: &str, place: &TemplateContext<'_>) -> Option<(usize, TemplatePiece)> {
    let between = |open: &str, close: &str| {
        let inside = rest.strip_prefix(open)?.split_once(close)?.0;
        Some((open.len() + inside.len() + close.len(), inside))
    };
    match place.syntax {
        VariableSyntax::None => None,
        VariableSyntax::Curly => {
            let (length, inside) = between("{", "}")?;
            let (kind, name) = inside.split_once(':')?;
            match kind {
                "env" => Some((length, variable(name, None)?)),
                "file" => Some((length, TemplatePiece::File(name.to_owned()))),
                _ => None,
            }
        }
        VariableSyntax::Double if rest.starts_with("${{") => {
            let (length, inside) = between("${{", "}}")?;
            let name = inside.trim();
            let name = name.strip_prefix("secrets.").or_else(|| name.strip_prefix("inputs.")).unwrap_or(name);
            let name = name.rsplit(['.', '/']).next().unwrap_or(name);
            Some((length, TemplatePiece::Input(name.to_owned())))
        }
        VariableSyntax::Braces | VariableSyntax::Shell | VariableSyntax::Double => {
            if let Some((length, inside)) = between("${", "}") {
                return Some((length, piece(inside, place)));
            }
            let name = rest.strip_prefix('$').filter(|_| place.syntax == VariableSyntax::Shell)?;
            let length = name.find(|c: char| !is_shell(c)).unwrap_or(name.len());
            Some((1 + length, variable(name.get(..length)?, None)?))
        }
    }
}

/// Adds a text, joined to a text before it.
fn push_text(pieces: &mut Vec<TemplatePiece>, text: &str) {
    if let Some(TemplatePiece::Text(last)) = pieces.last_mut() {
        last.push_str(text);
    } else if !text.is_empty() {
        pieces.push(TemplatePiece::Text(text.to_owned()));
    }
}

fn is_shell(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn variable(name: &str, default: Option<String>) -> Option<TemplatePiece> {
    let good = !name.is_empty() && name.chars().all(is_shell) && !name.starts_with(|c: char| c.is_ascii_digit());
    good.then(|| TemplatePiece::Variable { name: name.to_owned(), default })
}

/// Reads the text inside `${..}`.
fn piece(inside: &str, place: &TemplateContext<'_>) -> TemplatePiece {
    let folder = place.folder.map(|folder| folder.display().to_string());
    let below_home = |name: &str| place.home.map(|home| format!("{home}/{name}"));
    let known = match inside {
        "workspaceFolder" | "__dirname" | "CLAUDE_PROJECT_DIR" => folder,
        "workspaceFolderBasename" => {
            place.folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()))
        }
        "userHome" | "env:HOME" | "HOME" => place.home.map(str::to_owned),
        "DESKTOP" => below_home("Desktop"),
        "DOCUMENTS" => below_home("Documents"),
        "DOWNLOADS" => below_home("Downloads"),
        "pathSeparator" | "/" => Some("/".to_owned()),
        _ => None,
    };
    if let Some(text) = known {
        return TemplatePiece::Text(text);
    }
    if let Some(id) = inside.strip_prefix("input:").or_else(|| inside.strip_prefix("user_config.")) {
        return TemplatePiece::Input(id.to_owned());
    }
    if let Some(path) = inside.strip_prefix("file:") {
        return TemplatePiece::File(path.to_owned());
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inside.strip_prefix("env:").unwrap_or(inside), None),
    };
    let is_place = ["workspaceFolder", "userHome"].contains(&name);
    variable(name, default).filter(|_| !is_place).unwrap_or_else(|| TemplatePiece::Unknown(inside.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_own_notation() {
        let variable = |name: &str| TemplatePiece::Variable { name: name.to_owned(), default: None };
        let text = |text: &str| TemplatePiece::Text(text.to_owned());
        let cases = [
            (VariableSyntax::None, "a${B}$C{env:D}", vec![text("a${B}$C{env:D}")]),
            (VariableSyntax::Braces, "a${B}$C", vec![text("a"), variable("B"), text("$C")]),
            (VariableSyntax::Shell, "$A-${B}$", vec![variable("A"), text("-"), variable("B"), text("$")]),
            (VariableSyntax::Curly, "${A}{env:B}", vec![text("${A}"), variable("B")]),
            (VariableSyntax::Curly, "{file:~/x}{y}", vec![TemplatePiece::File("~/x".to_owned()), text("{y}")]),
            (
                VariableSyntax::Double,
                "Bearer ${{ secrets.K }}",
                vec![text("Bearer "), TemplatePiece::Input("K".to_owned())],
            ),
            (VariableSyntax::Braces, "${input:k}${", vec![TemplatePiece::Input("k".to_owned()), text("${")]),
            (VariableSyntax::Braces, "${userHome}/${1}", vec![text("/h/"), TemplatePiece::Unknown("1".to_owned())]),
        ];
        for (syntax, given, wanted) in cases {
            assert_eq!(pieces(given, &TemplateContext { folder: None, home: Some("/h"), syntax }), wanted, "{given}");
        }
    }
}
