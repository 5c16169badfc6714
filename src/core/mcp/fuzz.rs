//! Properties of an upstream's lists, questions and results that hold for any bytes.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a property fails by panicking")]

use super::method::{ItemList, Method};
use super::task::{ServerTask, strip_task_members};
use super::version::{Era, Revision};
use super::{log, project};
use crate::mcp::asking::elicitation::ElicitationTerms;
use crate::mcp::asking::input::{InputRequest, read_input_required, read_pages, write_for_client};
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::definition::item::{Definition, ListPage};
use crate::wire::fuzz::{assert_json, value};
use crate::wire::json::raw::{RawJson, RawObject};

/// Checks that a definition that was cleaned and repaired needs neither again, and is JSON for
/// clients of every revision.
pub fn items(data: &[u8]) {
    let Some(result) = value(data) else { return };
    for list in [ItemList::Tools, ItemList::Prompts, ItemList::Resources, ItemList::Templates] {
        let Ok(page) = ListPage::read(list, &result) else { continue };
        for item in &page.items {
            let encoded = item.raw.encode();
            assert_json(&encoded);
            let again = Definition::read(list, &encoded).unwrap();
            assert_eq!(again.digest, item.digest, "cleaned twice: {}", encoded.text());
            assert_eq!((item.hides, item.fault), (again.hides, again.fault));
            assert!(again.repairs.is_empty(), "repaired twice: {:?}", again.repairs);
            item.strings(&mut |text| assert!(item.hides || !text.contains(['\u{202e}', '\u{e0041}', '\u{1b}'])));
            let mut named = item.clone();
            named.name_titles("up");
            assert!(named.titles().all(|title| title.starts_with("up: ")));
            assert_eq!(named.titles().count(), item.titles().count());
            assert_json(&named.raw.encode());
            for &revision in Revision::ALL {
                assert_json(&project::project_definition(list, &item.raw, "up__x", revision, false).encode());
            }
        }
    }
}

/// Checks that no kind of question reaches a client that did not offer it, and that each question
/// names its server.
pub fn questions(data: &[u8]) {
    let Some(result) = value(data) else { return };
    let forms = InputKinds { form: true, ..InputKinds::default() };
    let all = InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true };
    for offered in [InputKinds::default(), forms, all] {
        let terms = ElicitationTerms::for_tests(offered);
        let seal = |state: Option<String>| Some(format!("sealed-{}", state.is_some()));
        if let Ok(shown) = write_for_client(&result, &terms, seal) {
            assert_json(&shown);
            let state = RawObject::parse(&shown).unwrap().string("requestState").unwrap();
            assert!(state.starts_with("sealed-"), "{state}");
        }
        let mut asked = read_input_required(&result, &terms).map(|wanted| wanted.asked).unwrap_or_default();
        if let Ok(error) = RawObject::parse(&result) {
            asked.extend(read_pages(&error, &terms).unwrap_or_default());
        }
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            asked.extend(
                InputRequest::of_legacy(method, Some(&result), &terms).map(|request| ("k".to_owned(), request)),
            );
        }
        for (_, request) in asked {
            is_fit(&request, offered);
        }
        let made =
            [ServerTask::created(&result, true), ServerTask::created(&result, false), ServerTask::got(&result, "git")];
        for task in made.into_iter().flatten() {
            if let Ok((shown, _declined)) = task.shown("ours", &terms) {
                assert_json(&shown);
            }
        }
    }
    if result.is_object() {
        strip_task_members(&result).iter().for_each(assert_json);
    }
    if let Some(shown) = log::write_for_client(&result, log::LogLevel::Debug, "up") {
        assert_json(&shown);
    }
}

/// Checks that a question is of an offered kind, names its server, and is JSON in every revision
/// that has it.
fn is_fit(request: &InputRequest, offered: InputKinds) {
    assert_json(&request.entry());
    let params = request.params.as_ref().and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
    match request.method.as_str() {
        "elicitation/create" => {
            let message = params.string("message").unwrap();
            assert!(message.starts_with("[git]"), "{message:?}");
            let url = params.string("mode").as_deref() == Some("url");
            assert!(if url { offered.url } else { offered.form });
            let address = params.string("url").filter(|_| url).unwrap_or_default().to_ascii_lowercase();
            assert!(!url || address.starts_with("https://") || address.starts_with("http://"), "{address:?}");
        }
        "sampling/createMessage" => assert!(offered.sampling),
        "roots/list" => assert!(offered.roots),
        other => panic!("{other} is no question"),
    }
    for &revision in Revision::ALL {
        let asked = request.clone().for_revision(revision, || "id".to_owned());
        if let Ok(Some(params)) = asked.map(|request| request.params) {
            assert_json(&params);
        }
    }
}

/// Checks that a result stays JSON on its way to a client of any revision, and has `resultType` in
/// the modern era only.
pub fn projection(data: &[u8]) {
    let Some(result) = value(data).filter(RawJson::is_object) else { return };
    for from in [Era::Legacy, Era::Modern] {
        for &to in Revision::ALL {
            for method in [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead, Method::Complete] {
                let Some(shown) = project::project_result(method, result.clone(), from, to) else { continue };
                assert_json(&shown);
                let Ok(members) = RawObject::parse(&result).and_then(|_| RawObject::parse(&shown)) else { continue };
                if to.era() == Era::Modern && from == Era::Legacy {
                    assert_eq!(members.string("resultType").as_deref(), Some("complete"));
                }
                if to.era() == Era::Legacy && from == Era::Modern {
                    assert!(members.get("resultType").is_none(), "{}", shown.text());
                }
            }
        }
    }
}
