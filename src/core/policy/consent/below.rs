//! Grants below a folder or for one site: which calls they cover, and when they are not offered.
//!
//! Such a grant judges each argument of the approved call that names a place, by its JSON pointer;
//! other texts and numbers may be anything. It covers a call if, and only if:
//!
//! - each judged argument is there, is a text, and lies below the folder, by the same test as
//!   `path-under` of a rule: absolute, without dot segments, NUL or percent signs; or is a URL with
//!   the scheme, host and port of the site and without a user;
//! - the call has no member, type of a value or boolean that the approved call lacked;
//! - no other text of the call looks like a path or a URL;
//! - no judged path has a segment that begins with a dot, or touches headend's own files.
//!
//! The judgement is lexical. Symbolic links and redirects are the server's matter, and the person
//! is told so.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::ApprovalSubject;
use super::shown::{CallDetails, KeptArguments};
use crate::policy::kind::ActionKind;
use crate::policy::rules::arguments::outline::{ArgumentOutline, is_command};
use crate::policy::rules::arguments::text::{UrlOrigin, is_plain_path, is_under, plain_folder};
use crate::policy::rules::truth::Truth;
use crate::wire::json::raw::{RawJson, RawObject};

/// Most folders that are offered for one call, the nearest first.
const MAX_OFFERS: usize = 4;
/// Most folders that are tried to find these offers.
const MAX_TRIED: usize = 16;
/// Longest folder or site, in bytes.
const MAX_BASE: usize = 1024;
/// Parents of home directories, known even if `HOME` says nothing: a service has no home.
const HOMES: &[&str] = &["/home", "/Users"];

/// Folders of this machine that a grant below a folder must not cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedFolders {
    /// Home directories. Neither they nor folders above them can be the base of a grant.
    pub homes: Vec<String>,
    /// Files and folders of headend's own configuration and state.
    pub own: Vec<String>,
}

impl ReservedFolders {
    /// Returns true if a path may be one of headend's own files, or below or above one.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.own.iter().any(|own| is_under(path, own) != Truth::No || is_under(own, path) != Truth::No)
    }

    /// Returns true if a folder is a home directory or above one.
    fn are_below(&self, folder: &str) -> bool {
        let is_people = |parent: &str| folder.rsplit_once('/').is_some_and(|(before, _)| before == parent);
        let known = self.homes.iter().map(String::as_str).chain(HOMES.iter().copied()).chain(["/root"]);
        HOMES.iter().any(|parent| is_people(parent))
            || known.into_iter().any(|home| is_under(home, folder) != Truth::No)
    }
}

/// The reason why calls cannot be allowed below a folder or for a site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error("only calls of tools, whose arguments are kept whole, can be allowed below a folder")]
    Item,
    #[error("`{0}` may be a command, a query or code, so calls of this tool are not allowed below a folder")]
    Command(String),
    #[error("no argument of this call is an absolute path or a URL, so there is nothing to judge")]
    NoPlace,
    #[error("`{0}` of this call is not below {1}, or is a path that headend does not judge")]
    Outside(String, String),
    #[error("{0}")]
    Base(String),
}

/// The part of the arguments that a grant below a folder or for a site covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderScope {
    base: String,
    /// JSON pointers of the judged arguments.
    judged: Vec<String>,
    /// Members that the approved call had, in the form of [`ArgumentOutline::members`].
    members: BTreeSet<String>,
}

/// The arguments of one call. Their outline is computed at the first use and kept.
#[derive(Debug)]
pub struct OutlinedArguments<'a> {
    json: &'a str,
    outline: OnceCell<Option<ArgumentOutline<'a>>>,
}

impl<'a> OutlinedArguments<'a> {
    /// Takes the JSON of the arguments as they are sent.
    pub const fn new(json: &'a str) -> Self {
        Self { json, outline: OnceCell::new() }
    }

    /// Returns the outline of the arguments; `None` if they have none.
    fn outline(&self) -> Option<&ArgumentOutline<'a>> {
        self.outline.get_or_init(|| ArgumentOutline::of(self.json)).as_ref()
    }
}

impl FolderScope {
    /// Builds the scope of a grant that covers the call and all like it below the folder `base`,
    /// or, if `base` is a URL, on its site.
    ///
    /// # Errors
    /// The reason why the call cannot be allowed below `base`.
    pub fn of(
        asked: &ApprovalSubject,
        shown: &CallDetails,
        base: &str,
        places: &ReservedFolders,
    ) -> Result<Self, ScopeError> {
        let given = arguments_of(asked, shown).ok_or(ScopeError::Item)?;
        Self::with(judgeable_outline(asked, &given)?, base, places)
    }

    /// As [`Self::of`], from the outline of the call's arguments.
    fn with(outline: &ArgumentOutline<'_>, base: &str, places: &ReservedFolders) -> Result<Self, ScopeError> {
        let this = Self {
            base: checked_base(base, places)?,
            judged: outline.places.iter().cloned().collect(),
            members: outline.members.clone(),
        };
        match outline.values.iter().find(|(_, value)| !this.has(value, places)) {
            Some((pointer, _)) => Err(ScopeError::Outside(pointer.clone(), this.base)),
            None if this.takes(outline, places) => Ok(this),
            None => Err(ScopeError::Item),
        }
    }

    /// Returns the scopes that a person is offered for a call, the narrowest first.
    pub fn offers(asked: &ApprovalSubject, shown: &CallDetails, places: &ReservedFolders) -> Vec<Self> {
        let Some(given) = arguments_of(asked, shown) else { return Vec::new() };
        let Ok(outline) = judgeable_outline(asked, &given) else { return Vec::new() };
        let mut values = outline.values.iter().map(|(pointer, value)| (pointer, value.as_str()));
        let Some((pointer, first)) = values.next() else { return Vec::new() };
        if let Some(origin) = UrlOrigin::of(first) {
            return Self::with(outline, &origin.to_string(), places).into_iter().collect();
        }
        let is_folder = ["repo", "dir", "folder", "cwd", "root", "workspace"].iter().any(|word| pointer.contains(word));
        let folder = |path: &str| if is_folder { Some(path.to_owned()) } else { parent(path) };
        let nearest = values
            .fold(folder(first.trim_end_matches('/')), |near, (_, path)| near.and_then(|near| common(&near, path)));
        let above = std::iter::successors(nearest, |folder| parent(folder));
        let offered = above.take(MAX_TRIED).filter_map(|folder| Self::with(outline, &folder, places).ok());
        offered.take(MAX_OFFERS).collect()
    }

    /// Returns true if a rule or a grant may cover all calls below this folder.
    pub(in crate::policy) fn is_folder(folder: &str, places: &ReservedFolders) -> bool {
        checked_base(folder, places).is_ok_and(|base| is_plain_path(&base)) && !places.has(folder)
    }

    /// Returns true if the scope covers a call with these arguments.
    pub fn covers(&self, given: &OutlinedArguments<'_>, places: &ReservedFolders) -> bool {
        given.outline().is_some_and(|outline| self.takes(outline, places))
    }

    /// As [`Self::covers`], for an outline.
    fn takes(&self, outline: &ArgumentOutline<'_>, places: &ReservedFolders) -> bool {
        let is_known = |pointer: &String| self.judged.contains(pointer);
        !self.judged.is_empty()
            && outline.members.is_subset(&self.members)
            && outline.places.iter().all(is_known)
            && outline.all_texts(&self.judged, &|text| self.has(text, places))
    }

    /// Returns true if an argument's text is a path below the folder that may be covered, or a URL
    /// of the site.
    fn has(&self, text: &str, places: &ReservedFolders) -> bool {
        match UrlOrigin::of(&self.base) {
            Some(origin) => UrlOrigin::of(text).is_some_and(|other| other == origin),
            None => {
                let is_hidden = text.split('/').any(|part| part.starts_with('.'));
                !text.contains('\0') && is_under(text, &self.base) == Truth::Yes && !is_hidden && !places.has(text)
            }
        }
    }

    /// Returns the folder, or the URL of the site.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the JSON pointers of the judged arguments.
    pub fn judged(&self) -> &[String] {
        &self.judged
    }

    /// Describes the folder or site and the judged arguments, for the audit log.
    pub fn scope(&self) -> String {
        format!("below {}, judged by {}", self.base, self.judged.join(", "))
    }

    /// Describes, for a person, which arguments a grant of this scope judges, where they must lead,
    /// and which arguments may have any value.
    pub fn told(&self) -> String {
        let judged = self.judged.join(", ");
        let members = self.members.iter().filter_map(|member| member.split_once(' '));
        let any = members
            .filter(|(kind, at)| matches!(*kind, "text" | "number") && !self.judged.iter().any(|judged| judged == at));
        let any: Vec<&str> = any.map(|(_, pointer)| pointer).collect();
        let any = if any.is_empty() { String::new() } else { format!("; any: {}", any.join(", ")) };
        let (what, matter) = match UrlOrigin::of(&self.base) {
            Some(_) => ("of this scheme, host and port", "Redirects"),
            None => ("below it, without segments that begin with a dot and headend's own files", "Symbolic links"),
        };
        format!("Judged: {judged}, {what}{any}. A call with a further argument asks. {matter} are the server's matter.")
    }

    /// Encodes the scope for the store.
    pub fn text(&self) -> String {
        let list = |texts: &mut dyn Iterator<Item = &String>| RawJson::list(texts.map(|text| RawJson::string(text)));
        let mut out = RawObject::of_strings(&[("base", &self.base)]);
        out.set("judged", list(&mut self.judged.iter()));
        out.set("members", list(&mut self.members.iter()));
        out.encode().text().into_owned()
    }

    /// Parses the text of [`Self::text`]; `None` if it is damaged.
    pub fn parse(text: &str) -> Option<Self> {
        let object = RawObject::parse(&RawJson::checked(text.to_owned()).ok()?).ok()?;
        let list = |name: &str| -> Option<Vec<String>> {
            object.list(name)?.iter().map(|raw| raw.parse::<String>().ok()).collect()
        };
        let (base, judged) = (object.string("base")?, list("judged")?);
        let is_whole = !judged.is_empty() && (UrlOrigin::of(&base).is_some() || is_plain_path(&base));
        is_whole.then_some(Self { base, judged, members: list("members")?.into_iter().collect() })
    }
}

/// Returns the arguments of a tool's call, if they are kept whole.
pub(super) fn arguments_of<'a>(asked: &ApprovalSubject, shown: &'a CallDetails) -> Option<OutlinedArguments<'a>> {
    match &shown.arguments {
        KeptArguments::Whole(json) if asked.kind == ActionKind::Tool => Some(OutlinedArguments::new(json)),
        KeptArguments::Whole(_) | KeptArguments::Beginning(_) => None,
    }
}

/// Returns the outline of the arguments.
///
/// # Errors
/// The reason why a grant below a folder or for a site cannot judge them.
fn judgeable_outline<'g>(
    asked: &ApprovalSubject,
    given: &'g OutlinedArguments<'_>,
) -> Result<&'g ArgumentOutline<'g>, ScopeError> {
    let item = &*asked.item;
    let tool = item.strip_prefix(&*asked.upstream).unwrap_or(item).trim_start_matches('_');
    if is_command(tool) {
        return Err(ScopeError::Command(tool.to_owned()));
    }
    let outline = given.outline().ok_or(ScopeError::Item)?;
    match &outline.command {
        Some(name) => Err(ScopeError::Command(name.clone())),
        None if outline.places.is_empty() => Err(ScopeError::NoPlace),
        None => Ok(outline),
    }
}

/// Returns a folder or the URL of a site in its plain spelling.
///
/// # Errors
/// [`ScopeError::Base`], if it cannot be the base of a grant.
fn checked_base(text: &str, places: &ReservedFolders) -> Result<String, ScopeError> {
    let refused = |why: String| Err(ScopeError::Base(why));
    if text.len() > MAX_BASE {
        return refused(format!("must not be longer than {MAX_BASE} bytes"));
    }
    if text.contains("://") {
        let whole = UrlOrigin::of(text).filter(|_| text.splitn(4, '/').nth(3).is_none_or(str::is_empty));
        return match whole {
            Some(origin) if !text.contains(['?', '#']) => Ok(origin.to_string()),
            _ => refused(format!("`{text}` is no site: write its scheme, host and port, such as https://host/")),
        };
    }
    let folder = plain_folder(text).map_err(ScopeError::Base)?;
    if folder.split('/').any(|part| part.starts_with('.')) {
        return refused(format!("`{text}` has a segment that begins with a dot"));
    }
    if places.are_below(&folder) {
        return refused(format!("`{text}` is a home directory or above one; name a folder in it"));
    }
    if places.own.iter().any(|own| is_under(&folder, own) != Truth::No) {
        return refused(format!("`{text}` belongs to headend's own configuration or state"));
    }
    Ok(folder.into_string())
}

/// Returns the folder of a path; `None` for the root.
fn parent(path: &str) -> Option<String> {
    path.rsplit_once('/').map(|(parent, _)| parent.to_owned()).filter(|parent| !parent.is_empty())
}

/// Returns the deepest folder that contains both paths or is one of them; `None` for the root.
fn common(one: &str, other: &str) -> Option<String> {
    let same = one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other);
    let folder = same.map(|(part, _)| part).collect::<Vec<_>>().join("/");
    (!folder.is_empty()).then_some(folder)
}

#[cfg(test)]
mod tests;
