//! A gateway whose callers sign in at real authorization servers.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use super::mint::TokenMint;
use crate::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::mcp::{ClientEra, Mcp, McpAnswer};
use crate::peers::PeerFolders;
use crate::peers::logins::parts::EventPeer;
use crate::process::{free_port, output_within, said};
use crate::upstream::toml_array;

/// The tool that every caller's scopes allow.
pub(super) const TOOL: &str = "time__now";

/// The scopes of items: the notes need another one, and their removal two.
const SCOPES: &str = r#"auth.scopes."mcp:read" = { upstreams = ["time"] }
auth.scopes."mcp:write" = { upstreams = ["notes"] }
auth.scopes."mcp:admin" = { tools = ["notes__delete"] }"#;

/// Limits that no machine reaches.
const LIMITS: &str = r#"limits.auth-failures = "6000/m"
limits.caller-rate = "100000/s"
limits.caller-burst = 100000"#;

/// Longest time of one client program.
const CLIENT: Duration = Duration::from_secs(120);

/// A machine that has a token without a person.
const MACHINE: &str = r#"[{"client_id": "machine", "client_secret": "the machine's secret",
    "grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}]"#;

/// Authorization servers, and the gateway that takes their tokens.
pub(super) struct IssuerSetup {
    pub(super) peers: PeerFolders,
    pub(super) issuer: EventPeer,
    pub(super) gateway: Gateway,
    /// The address under which the gateway is known.
    pub(super) public: String,
}

impl IssuerSetup {
    /// Starts `oidc-provider`, whose tokens are the gateway's only JWTs, and the gateway.
    pub(super) fn new(more: &[(&str, &str)]) -> Option<Self> {
        Self::with(more, |_, _| (String::new(), ""))
    }

    /// Does the same as [`IssuerSetup::new`], with more lines of `issuers` and more profiles. The
    /// closure that returns them may start more peers.
    pub(super) fn with(
        more: &[(&str, &str)],
        lines: impl FnOnce(&PeerFolders, &GatewaySetup) -> (String, &'static str),
    ) -> Option<Self> {
        let peers = PeerFolders::find()?;
        let setup = GatewaySetup::new();
        let all = [&[("CLIENTS", MACHINE)], more].concat();
        let issuer = EventPeer::start(&peers, &setup.world, "oidc-provider.mjs", &[], &all);
        let (lines, profiles) = lines(&peers, &setup);
        let (gateway, public) = start(setup, &issuer.said("issuer"), &lines, profiles);
        Some(Self { peers, issuer, gateway, public })
    }

    /// Starts the gateway first, and then `oidc-provider`.
    pub(super) fn before_its_issuer() -> Option<Self> {
        let peers = PeerFolders::find()?;
        let port = free_port().to_string();
        let (gateway, public) = start(GatewaySetup::new(), &format!("http://127.0.0.1:{port}"), "", "");
        let more = [("CLIENTS", MACHINE), ("PORT", &*port)];
        let issuer = EventPeer::start(&peers, &gateway.world, "oidc-provider.mjs", &[], &more);
        Some(Self { peers, issuer, gateway, public })
    }

    /// Returns the address of the endpoint or, with a name, of a profile.
    pub(super) fn place(&self, path: &str) -> String {
        format!("{}{path}", self.public)
    }

    /// Signs a person in at an issuer; returns the answer of its token endpoint.
    pub(super) fn sign_in(&self, issuer: &EventPeer, user: &str, job: Value) -> Value {
        let mut job = job;
        job["issuer"] = json!(issuer.said("issuer"));
        job["user"] = json!(user);
        job["password"] = json!("canary-password");
        self.run("node", "sign-in.mjs", &job)
    }

    /// Signs a person in at `oidc-provider`; returns the access token for that resource.
    pub(super) fn token(&self, user: &str, resource: &str) -> String {
        let job = json!({"resource": resource, "scope": "openid mcp:read mcp:write"});
        access(&self.sign_in(&self.issuer, user, job))
    }

    /// Returns a token that `oidc-provider` gives to a machine.
    pub(super) fn machine_token(&self) -> String {
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", &*self.place("/mcp")),
            ("scope", "mcp:read"),
            ("client_id", "machine"),
            ("client_secret", "the machine's secret"),
        ];
        let mut answer = ureq::post(format!("{}/token", self.issuer.said("issuer"))).send_form(form).unwrap();
        access(&serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap())
    }

    /// Returns a mint for tokens like this one of `oidc-provider`.
    pub(super) fn mint(&self, real: &str) -> TokenMint {
        TokenMint::like(real, &self.issuer.events("listening")[0]["key"])
    }

    /// Runs a client of `tests/peers` with a job, and returns its report.
    pub(super) fn run(&self, runtime: &str, script: &str, job: &Value) -> Value {
        let report = run(&self.gateway.world, &self.peers, runtime, script, job, &[]);
        report.unwrap_or_else(|story| panic!("{story}\n{}", self.issuer.story()))
    }

    /// Calls the tool of all scopes with a token, at this path.
    pub(super) fn call_at(&self, path: &str, token: &str) -> McpAnswer {
        let mut client = Mcp::http_at(self.gateway.address, Some(token.to_owned()), ClientEra::Modern, path, json!({}));
        client.call(TOOL, json!({}))
    }

    /// Calls at the endpoint and fails unless the call succeeds.
    pub(super) fn passes(&self, label: &str, token: &str) {
        let answer = self.call_at("/mcp", token);
        assert!(answer.status == 200 && !answer.is_error(), "{label}: {}\n{token}", describe(&answer));
    }
}

/// Starts a gateway that takes tokens of `oidc-provider` at that address, and of the issuers in
/// `lines`, and has these profiles. Returns it with the address under which it is known.
fn start(setup: GatewaySetup, issuer: &str, lines: &str, profiles: &str) -> (Gateway, String) {
    let port = free_port();
    let public = format!("http://127.0.0.1:{port}");
    let demo = |name: &str| format!("[upstreams.{name}]\ncommand = {}\n", toml_array([headend(), "demo", name]));
    let setup = setup
        .server(&format!(
            "auth.mode = [\"token\", \"jwt\"]\nauth.public-url = {public:?}\n\
             auth.issuers = [\n{{ name = \"provider\", issuer = {issuer:?}, groups-claim = \"groups\" }},\n{lines}]\n\
             {LIMITS}\n{SCOPES}"
        ))
        .toml(&demo("time"))
        .toml(&demo("notes"))
        .toml("[profiles.reading]\nupstreams = [\"time\"]")
        .toml(profiles);
    let text = setup.text().replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
    let path = setup.world.write("headend.toml", &text);
    let gateway = Gateway::start(setup.world, Some(path), &["serve"], &[]);
    gateway.wait_for_tools(&[TOOL, "notes__add"]);
    (gateway, public)
}

/// Runs a client of `tests/peers` with a job to its end; returns its report, or what it said when
/// it failed. The runtime is `node` or an environment of Python, and `more` are variables.
pub(super) fn run(
    world: &TestHome,
    peers: &PeerFolders,
    runtime: &str,
    script: &str,
    job: &Value,
    more: &[(&str, PathBuf)],
) -> Result<Value, String> {
    let program = match runtime {
        "node" => peers.node(),
        folder => peers.root().join(folder).join("bin/python"),
    };
    let mut command = world.command(program.to_str().unwrap());
    command.arg(crate::ground::root().join("tests/peers").join(script)).arg(job.to_string());
    command.env("PEERS_NODE", peers.folder()).envs(more.iter().cloned());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_within(child, CLIENT, script);
    if !output.status.success() {
        return Err(format!("{script} {job}: {}", said(&output)));
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns the access token of an answer of a token endpoint.
pub(super) fn access(answer: &Value) -> String {
    answer["access_token"].as_str().unwrap_or_else(|| panic!("no access token: {answer}")).to_owned()
}

/// Returns status, challenge and body of an answer, for the message of a failure.
pub(super) fn describe(answer: &McpAnswer) -> String {
    let challenge = answer.head.header("www-authenticate").unwrap_or("none");
    format!("status {}, challenge {challenge}: {}", answer.status, answer.raw)
}
