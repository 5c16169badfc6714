//! Finds the imports between files of `src`, and circles among them.
//!
//! Only the text is parsed: `use` trees and paths, without tests. A path leads to the deepest file
//! that it names, and a re-exported name leads to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

/// Names that each file imports from each other file. Keys are modules such as `policy::decide`.
pub(super) type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Finds the imports of modules, given with their texts.
pub(super) fn imports(texts: &[(String, String)]) -> Imports {
    let files: SourceFiles<'_> = texts.iter().map(|(module, text)| (module.as_str(), File::read(text))).collect();
    let mut imports = Imports::new();
    for (module, file) in &files {
        let taken = imports.entry((*module).to_owned()).or_default();
        // A mere re-export is not an import.
        let uses = file.uses.iter().filter(|one| !one.is_public || file.words.contains(one.name)).map(|one| &one.path);
        for path in uses.chain(&file.paths) {
            let (from, name) = resolve(&files, &absolute(module, path), &mut BTreeSet::new());
            if from != *module {
                taken.entry(from).or_default().insert(name);
            }
        }
    }
    imports
}

/// The imports between the entries of a folder: its files, each together with the folder of that
/// name.
pub(super) fn within(imports: &Imports, folder: &str) -> Imports {
    let entry = |module: &str| {
        let rest = module.strip_prefix(folder)?.strip_prefix("::")?;
        rest.split("::").next().map(str::to_owned)
    };
    let mut between = Imports::new();
    for (module, from) in imports {
        let Some(own) = entry(module) else { continue };
        let taken = between.entry(own.clone()).or_default();
        for (other, names) in from {
            if let Some(other) = entry(other).filter(|other| *other != own) {
                taken.entry(other).or_default().extend(names.iter().cloned());
            }
        }
    }
    between
}

/// Returns the sets of files that reach each other, each in the order of its names.
pub(super) fn circles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let needs: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (file.as_str(), needs_of(imports, file))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (file, others) in &needs {
        let is_known = circles.iter().any(|circle| circle.contains(file));
        if others.contains(file) && !is_known {
            let needs_it = |other: &&str| needs.get(other).is_some_and(|needs| needs.contains(file));
            circles.push(others.iter().copied().filter(needs_it).collect());
        }
    }
    circles
}

/// Returns all files that a file needs; itself only if one of them needs it.
fn needs_of<'i>(imports: &'i Imports, from: &str) -> BTreeSet<&'i str> {
    let mut needs = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            if needs.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    needs
}

type SourceFiles<'t> = BTreeMap<&'t str, File<'t>>;

/// The imports and words of one file outside of its tests.
#[derive(Default)]
struct File<'t> {
    uses: Vec<Use<'t>>,
    /// Paths of at least two words in the code.
    paths: Vec<Vec<&'t str>>,
    /// Words that stand alone or begin a path.
    words: BTreeSet<&'t str>,
}

struct Use<'t> {
    path: Vec<&'t str>,
    /// The local name of the path.
    name: &'t str,
    is_public: bool,
}

/// Returns the path from the root of the crate.
fn absolute<'p>(module: &'p str, path: &[&'p str]) -> Vec<&'p str> {
    let mut from: Vec<&str> = module.split("::").filter(|word| !word.is_empty()).collect();
    let mut rest = path;
    while let [first @ ("crate" | "self" | "super"), others @ ..] = rest {
        match *first {
            "crate" => from.clear(),
            "super" => {
                from.pop();
            }
            _ => {}
        }
        rest = others;
    }
    from.extend(rest);
    from
}

/// Returns the file that defines a path's item, and the item's name there. An item of another crate
/// counts as defined in the file that imports it.
fn resolve<'t>(files: &SourceFiles<'t>, path: &[&'t str], seen: &mut BTreeSet<(String, &'t str)>) -> (String, String) {
    let mut module = String::new();
    for (at, word) in path.iter().enumerate() {
        let child = if module.is_empty() { (*word).to_owned() } else { format!("{module}::{word}") };
        if files.contains_key(child.as_str()) {
            module = child;
            continue;
        }
        let Some((&key, file)) = files.get_key_value(module.as_str()) else { break };
        let handed_on = file.uses.iter().find(|one| one.name == *word);
        if let Some(one) = handed_on.filter(|_| seen.insert((module.clone(), *word))) {
            let mut longer = absolute(key, &one.path);
            longer.extend(&path[at + 1..]);
            return resolve(files, &longer, seen);
        }
        return (module, (*word).to_owned());
    }
    let name = module.rsplit("::").next().unwrap_or_default().to_owned();
    (module, name)
}

impl<'t> File<'t> {
    fn read(text: &'t str) -> Self {
        let mut file = Self::default();
        let tokens = without_tests(&tokens(text));
        let mut rest = tokens.iter().copied().peekable();
        let (mut is_public, mut is_member) = (false, false);
        while let Some(token) = rest.next() {
            match token {
                "pub" => {
                    if rest.peek() == Some(&"(") {
                        rest.by_ref().find(|token| *token == ")");
                    }
                    is_public = true;
                    continue;
                }
                // Not the `use<..>` of a type.
                "use" if rest.peek() != Some(&"<") => tree(&mut rest, &[], is_public, &mut file.uses),
                "mod" => {
                    rest.next();
                }
                word if is_word(word) && !is_member => {
                    let mut path = vec![word];
                    while rest.next_if_eq(&"::").is_some() {
                        match rest.next_if(|token| is_word(token)) {
                            Some(word) => path.push(word),
                            None => break,
                        }
                    }
                    file.words.insert(word);
                    if path.len() > 1 {
                        file.paths.push(path);
                    }
                }
                _ => {}
            }
            is_member = token == ".";
            is_public = false;
        }
        file
    }
}

/// Parses one tree of a `use`, up to its end.
fn tree<'t>(
    rest: &mut Peekable<impl Iterator<Item = &'t str>>,
    before: &[&'t str],
    is_public: bool,
    uses: &mut Vec<Use<'t>>,
) {
    let mut path = before.to_vec();
    let mut name = None;
    let mut is_empty = true;
    while let Some(token) = rest.next_if(|token| !matches!(*token, "," | "}" | ";")) {
        is_empty = false;
        match token {
            "::" => {}
            "as" => name = rest.next(),
            "{" => {
                tree(rest, &path, is_public, uses);
                while rest.next() == Some(",") {
                    tree(rest, &path, is_public, uses);
                }
                return;
            }
            "self" if !path.is_empty() => {}
            word => path.push(word),
        }
    }
    if let Some(name) = name.or(path.last().copied()).filter(|_| !is_empty) {
        uses.push(Use { path, name, is_public });
    }
}

/// Returns the tokens without items that exist only for tests.
fn without_tests<'t>(tokens: &[&'t str]) -> Vec<&'t str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let ["#", "[", "cfg", ..] = tokens[at..] {
            let end = at + tokens[at..].iter().position(|token| *token == "]").unwrap_or_default();
            let condition = &tokens[at..end];
            if condition.contains(&"test") && !condition.contains(&"not") {
                at = end + 1 + length_of_item(&tokens[end + 1..]);
                continue;
            }
        }
        kept.push(*token);
        at += 1;
    }
    kept
}

/// Returns the number of tokens of the first item, field or statement: up to its `;`, its last
/// brace, or the end of its surroundings.
fn length_of_item(tokens: &[&str]) -> usize {
    let mut depth = 0;
    let mut is_use = false;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "use" if depth == 0 => is_use = true,
            ";" if depth == 0 => return at + 1,
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" if depth == 1 && !is_use => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns words and signs, without comments and literals.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let literal = length_of_literal(rest);
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if literal > 0 {
            literal
        } else if rest.starts_with("::") {
            2
        } else {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            word.max(first.len_utf8())
        };
        let (token, after) = rest.split_at(length);
        if literal == 0 && !first.is_whitespace() && !token.starts_with("//") {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

/// Returns the length of the string or character literal at the front; zero if there is none.
fn length_of_literal(text: &str) -> usize {
    let to = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    let plain = text.trim_start_matches(['b', 'c']);
    let raw = plain.trim_start_matches('r').trim_start_matches('#');
    let before = text.len() - raw.len();
    if raw.starts_with('"') && text[..before].contains('r') {
        let hashes = text[..before].matches('#').count();
        return to(before + 1, &format!("\"{}", "#".repeat(hashes)));
    }
    if text.starts_with('"') {
        let mut is_escaped = false;
        let end = text.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        });
        return end.map_or(text.len(), |(at, _)| at + 1);
    }
    let mut chars = text.char_indices();
    match (chars.next(), chars.next(), chars.next()) {
        (Some((_, '\'')), Some((_, '\\')), Some((at, escaped))) => to(at + escaped.len_utf8(), "'"),
        // Everything else is a lifetime.
        (Some((_, '\'')), Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

#[test]
fn circles_are_found_and_chains_are_not() {
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("f", "g"), ("g", "f"), ("h", "a")];
    let mut graph = Imports::new();
    for (from, to) in edges {
        graph.entry(from.to_owned()).or_default().entry(to.to_owned()).or_default().insert("X".to_owned());
        graph.entry(to.to_owned()).or_default();
    }
    assert_eq!(circles(&graph), [BTreeSet::from(["a", "b", "c"]), BTreeSet::from(["f", "g"])]);
    graph.get_mut("c").unwrap().remove("a");
    graph.remove("g");
    assert!(circles(&graph).is_empty());
}

#[test]
fn names_are_taken_from_the_files_that_define_them() {
    let files = [
        ("", "pub mod a; mod c; mod d;"),
        ("a", "mod b; pub(crate) use self::b::{B, Unused as Handed}; fn f(b: B) -> &'static str { \"crate::c::No\" }"),
        (
            "a::b",
            "//! crate::d::No\nuse super::super::c as see; use super::{f, Here}; fn g() { see::h('\"', r#\"crate::d\"#) }",
        ),
        ("c", "use std::fmt::{self, Write as _}; pub(in crate::d) fn h() { crate::a::Handed::new(super::d::k) }"),
        ("d", "pub fn k() {} #[cfg(test)] use crate::a::B; #[cfg(test)] mod tests { use crate::c::h; }"),
    ];
    let texts = files.map(|(module, text)| (module.to_owned(), text.to_owned()));
    let found = imports(&texts);
    let taken = |file: &str| -> Vec<(String, Vec<String>)> {
        found[file].iter().map(|(from, names)| (from.clone(), names.iter().cloned().collect())).collect()
    };
    let row = |from: &str, names: &[&str]| (from.to_owned(), names.iter().map(|name| (*name).to_owned()).collect());
    assert!(taken("").is_empty() && taken("d").is_empty());
    assert_eq!(taken("a"), [row("a::b", &["B"])]);
    assert_eq!(taken("a::b"), [row("a", &["Here", "f"]), row("c", &["c", "h"])]);
    assert_eq!(taken("c"), [row("a::b", &["Unused"]), row("d", &["k"])]);
    assert_eq!(circles(&found), [BTreeSet::from(["a", "a::b", "c"])]);
}
