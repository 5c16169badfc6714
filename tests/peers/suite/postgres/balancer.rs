//! The shipped example of nginx in front of two replicas, and a third one that is dead: requests in
//! turn without affinity, streams, large bodies, TLS, and a replica that is restarted.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::cluster;
use super::replicas::LINK;
use super::server::PostgresServer;
use crate::consenting::{ApprovalGateway, TOKEN};
use crate::harness::{Gateway, GatewaySetup, TestHome, left_out};
use crate::mcp::{ClientEra, Mcp};
use crate::process::{end, eventually, free_port, installed, said};

/// The name that the example serves.
const NAME: &str = "mcp.example.com";

/// A running nginx with the example, which ends with this value.
struct Nginx {
    process: Child,
    /// An address that the test has added, without TLS.
    plain: SocketAddr,
    tls: u16,
}

impl Nginx {
    /// Starts nginx with the example in `world`, between a certificate and these replicas. Returns
    /// `None` and says that the test is left out where nginx is not installed.
    fn start(world: &TestHome, replicas: [SocketAddr; 3]) -> Option<Self> {
        let program = ["nginx", "/usr/sbin/nginx"].into_iter().find(|program| installed(program));
        let Some(program) = program.filter(|_| certificate(world)) else {
            left_out("nginx in front of replicas", "nginx or openssl is not installed");
            return None;
        };
        let (plain, tls) = (SocketAddr::from(([127, 0, 0, 1], free_port())), free_port());
        let shipped =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/nginx.conf")).unwrap();
        let mut example =
            shipped.replace("listen 443 ssl;", &format!("listen {plain};\n  listen 127.0.0.1:{tls} ssl;"));
        example = example.replace("/etc/nginx/mcp/", &format!("{}/", world.path("").display()));
        for (written, replica) in ["10.0.0.7:8627", "10.0.0.8:8627", "10.0.0.9:8627"].into_iter().zip(replicas) {
            assert!(example.contains(written), "{written}");
            example = example.replace(written, &replica.to_string());
        }
        let example = world.write("example.conf", &example);
        let folder = |name: &str| format!("{name}_temp_path {};\n", world.path(name).display());
        let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(folder).concat();
        let main = format!(
            "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}include {};\n}}\n",
            world.path("nginx.pid").display(),
            example.display()
        );
        let main = world.write("main.conf", &main);
        let command = |more: &[&str]| {
            let mut command = Command::new(program);
            command.args(["-e", "stderr", "-c"]).arg(&main).args(more).stdin(Stdio::null());
            command
        };
        let tested = command(&["-t"]).output().unwrap();
        assert!(tested.status.success() && !said(&tested).contains("[warn]"), "{}", said(&tested));
        let process = command(&[]).spawn().unwrap();
        eventually("nginx listens", || TcpStream::connect(plain).is_ok());
        Some(Self { process, plain, tls })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// Makes a certificate of the example's name that signs itself; false without openssl.
fn certificate(world: &TestHome) -> bool {
    let mut made = world.command("openssl");
    made.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    made.args(["-subj", &format!("/CN={NAME}"), "-addext", &format!("subjectAltName=DNS:{NAME}")]);
    made.arg("-keyout").arg(world.path("privkey.pem")).arg("-out").arg(world.path("fullchain.pem"));
    made.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn replica(server: &PostgresServer, name: &str) -> ApprovalGateway {
    let rule = "[[policy.rules]]\nid = \"all\"\neffect = \"allow\"\ntools = [\"fx__*\"]\n";
    let setup = GatewaySetup::new()
        .server(&format!("allowed-hosts = [\"{NAME}\"]\ntrusted-proxies = [\"127.0.0.1\"]\ndrain-timeout = \"2s\""));
    ApprovalGateway::of(setup, "", &format!("{rule}{}", cluster(server, name, LINK)))
}

fn echo(client: &mut Mcp, text: &str) {
    assert_eq!(client.call("fx__echo", json!({"text": text})).text(), text);
}

#[test]
fn nginx_sends_each_request_to_another_replica() {
    let Some(server) = PostgresServer::start("") else { return };
    let [mut one, two] = ["one", "two"].map(|name| replica(&server, name));
    let dead = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let world = TestHome::new();
    let Some(nginx) = Nginx::start(&world, [one.gateway.address, dead, two.gateway.address]) else { return };
    let client = |era| Mcp::http_at(nginx.plain, Some(TOKEN.to_owned()), era, "/mcp", json!({}));

    let (mut legacy, mut modern) = (client(ClientEra::LEGACY), client(ClientEra::Modern));
    let session = legacy.session();
    for number in 0..12 {
        echo(&mut legacy, &format!("legacy {number}"));
    }
    for number in 0..12 {
        echo(&mut modern, &format!("modern {number}"));
    }
    let called = [&one, &two].map(|stage| stage.called().iter().filter(|call| is_modern(call)).count());
    assert!(called[0] > 0 && called[1] > 0, "no affinity: {called:?}");
    echo(&mut modern, &"x".repeat(3 << 20));

    // A call that lasts: its events come one by one.
    for client in [&mut legacy, &mut modern] {
        let arguments = json!({"steps": 600, "delay_ms": 1000});
        let params = json!({"name": "fx__progress", "arguments": arguments, "_meta": {"progressToken": "p"}});
        let mut lasting = client.open("tools/call", params);
        assert_eq!(lasting.next().unwrap()["method"], "notifications/progress");
    }
    assert_eq!(status_over_tls(&nginx, &world), "401", "headend answers a client without a token");

    // A replica is restarted, and no call fails meanwhile.
    one.gateway.signal(Signal::TERM);
    for number in 0..12 {
        echo(&mut modern, &format!("during {number}"));
    }
    one.gateway.wait(Duration::from_secs(60)).unwrap();
    for number in 0..4 {
        echo(&mut modern, &format!("without {number}"));
        echo(&mut legacy, &format!("without {number}"));
    }
    restart(&mut one);
    for number in 0..12 {
        echo(&mut modern, &format!("after {number}"));
        echo(&mut legacy, &format!("after {number}"));
    }
    assert_eq!(legacy.session(), session);
    eventually("the restarted replica gets calls again", || {
        echo(&mut modern, "again");
        one.called().iter().any(|call| call["text"] == "again")
    });
}

fn is_modern(call: &Value) -> bool {
    call["text"].as_str().is_some_and(|text| text.starts_with("modern"))
}

/// Starts a replica again with its configuration, at the address that it had.
fn restart(stage: &mut ApprovalGateway) {
    let address = stage.gateway.address;
    let text = fs::read_to_string(&stage.gateway.config).unwrap();
    let text = text.replacen("listen = [\"127.0.0.1:0\"]", &format!("listen = [\"{address}\"]"), 1);
    fs::write(&stage.gateway.config, text).unwrap();
    let (world, config) = (stage.gateway.world.clone(), stage.gateway.config.clone());
    let token = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    stage.gateway = Gateway::start(world, Some(config), &["serve"], &token);
    stage.gateway.wait_for_tools(&["fx__echo"]);
}

/// Returns the status of a request without a token, by the name and certificate of the example.
fn status_over_tls(nginx: &Nginx, world: &TestHome) -> String {
    let mut curl = world.command("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"]).arg(world.path("fullchain.pem"));
    curl.args(["--resolve", &format!("{NAME}:{}:127.0.0.1", nginx.tls), &format!("https://{NAME}:{}/mcp", nginx.tls)]);
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
