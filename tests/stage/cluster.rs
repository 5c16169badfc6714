//! Tests of several replicas in one process, whose directory is in memory. They begin with copies
//! of one store, so that all of them have its keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use headend_shell::stage::replicas;
use headend_shell::store::port::MemoryReplicas;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::upstream::{Fake, InputLog, Listening};
use crate::stage::{block_on, net, pass, stage};

mod dead;
mod passed;
mod placed;
mod sessions;

/// The token of all clients, which all replicas know.
const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Replicas with one directory, each with its own upstream `fx`.
struct TestCluster {
    // The replicas end before the directory is gone.
    replicas: Vec<Gateway>,
    logs: Vec<InputLog>,
    directory: Arc<MemoryReplicas>,
    /// A server that all replicas share, and the folder of its log.
    _server: Option<(Listening, GatewaySetup)>,
}

impl TestCluster {
    /// Starts three replicas that speak plain HTTP or TLS with each other.
    fn start(scheme: &str) -> Self {
        Self::start_with(scheme, "", |setup, log| setup.fake("fx", &Fake::stdio("legacy").logging(log)))
    }

    /// Starts replicas before one server behind HTTP that asks.
    fn asking() -> Self {
        Self::sharing(Fake::http("legacy").with("--answers", "sse").behaving("asks"), "default = \"allow\"")
    }

    /// Starts replicas with these lines of `[policy]` before one server behind HTTP.
    fn sharing(server: Fake, policy: &str) -> Self {
        let folder = GatewaySetup::new();
        let log = InputLog::new(&folder.world.path("work"), "fx");
        let server = server.logging(&log).spawn();
        let url = server.url.clone();
        let mut cluster = Self::start_with("http", "", |setup, _| setup.policy(policy).url("fx", &url));
        (cluster.logs, cluster._server) = (vec![log], Some((server, folder)));
        cluster
    }

    /// Starts replicas with these lines in `[server]` and the upstream that `add` adds to each.
    fn start_with(scheme: &str, server: &str, add: impl Fn(GatewaySetup, &InputLog) -> GatewaySetup) -> Self {
        let directory = Arc::new(MemoryReplicas::default());
        replicas::install(Some(Arc::clone(&directory)));
        let (mut gateways, mut logs) = (Vec::<Gateway>::new(), Vec::new());
        let mut store: Vec<(String, Vec<u8>)> = Vec::new();
        for number in 0..3 {
            let setup = GatewaySetup::new().second_caller(TOKEN).server(server);
            let log = InputLog::new(&setup.world.path("work"), "fx");
            let cluster = format!(
                "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"\n[cluster]\nstore = \"postgres://localhost/headend\"\n\
                 name = \"r{number}\"\npeer-listen = \"127.0.0.1:0\"\npeer-url = \"{scheme}://127.0.0.1:0\""
            );
            let setup = add(setup, &log).toml(&cluster);
            let state = setup.world.path("state/headend");
            if !store.is_empty() {
                fs::create_dir(&state).unwrap();
                fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
                store.iter().for_each(|(name, bytes)| {
                    setup.world.write(&format!("state/headend/{name}"), "");
                    fs::write(state.join(name), bytes).unwrap();
                });
            }
            let mut gateway = setup.start();
            if number == 0 {
                // The first start makes the store; the others begin with a copy.
                gateway.stop();
                let (world, path) = (gateway.world.clone(), gateway.config.clone());
                drop(gateway);
                let files = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap());
                let files = files.filter(|entry| entry.file_name().to_str().unwrap().starts_with("headend.db"));
                store = files
                    .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
                    .collect();
                let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
                gateway = Gateway::start(world, Some(path), &["serve"], &environment);
            }
            gateways.push(gateway);
            logs.push(log);
        }
        let cluster = Self { replicas: gateways, logs, directory, _server: None };
        for replica in &cluster.replicas {
            replica.wait_for_tools(&["fx__echo"]);
        }
        cluster
    }

    /// Creates a client of a replica.
    fn client(&self, replica: usize, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.replicas[replica].address, Some(TOKEN.to_owned()), era, "/mcp", capabilities)
    }

    /// Lets a client go on at another replica.
    fn move_to(&self, client: &mut Mcp, replica: usize) {
        client.follow(self.replicas[replica].address);
    }

    /// Returns the port of a replica's listener for others.
    fn peer_port(&self, replica: usize) -> u16 {
        self.replicas[replica].inner().peers_front().unwrap().local.port()
    }

    /// Ends a replica and leaves its row in the directory, as kill -9 does. Returns the port on
    /// which others reached it.
    fn kill(&mut self, replica: usize) -> u16 {
        let port = self.peer_port(replica);
        let run = self.replicas[replica].inner().service.cluster.as_ref().unwrap().run().unwrap();
        let row = self.directory.rows().into_iter().find(|row| row.run == run).unwrap();
        self.directory.keep_leases(true);
        self.replicas[replica].signal(Signal::KILL);
        assert!(self.replicas[replica].wait(Duration::from_secs(60)).is_some());
        self.directory.put(row);
        self.directory.keep_leases(false);
        port
    }

    /// Returns how often `fx` was called at all replicas with this text in the request.
    fn calls(&self, needle: &str) -> usize {
        self.logs.iter().map(|log| log.lines_with(&["\"tools/call\"", needle]).len()).sum()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.replicas.clear();
        replicas::install(None);
    }
}

/// Returns the refusal of a tool's result: its reason, and whether the call was executed.
fn refusal(result: &Value) -> (Value, Value) {
    let refusal = &result["_meta"]["headend/refusal"];
    (refusal["reason"].clone(), refusal["executed"].clone())
}

/// Returns arguments with which `fx__inquire` asks one question.
fn asks() -> Value {
    let question = json!({"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema":
        {"type": "object", "properties": {"sure": {"type": "boolean"}}}}});
    json!({"rounds": [[question]], "via": "call"})
}

fn lost() -> (Value, Value) {
    (json!("replica_lost"), json!("unknown"))
}
