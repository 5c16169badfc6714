//! Three replicas before one server, and nginx of Debian in front of them, which sends each request
//! to the next one.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::cluster;
use super::replicas::LINK;
use super::server::PostgresServer;
use crate::consenting::TOKEN;
use crate::harness::{Gateway, GatewaySetup, TestHome, left_out};
use crate::process::{end, eventually, free_port};
use crate::upstream::{Fake, InputLog, Listening};

const NGINX: &str = "/usr/sbin/nginx";

/// The replicas, what is behind them and what is in front of them.
pub(crate) struct ThreeReplicas {
    nginx: Child,
    pub(crate) replicas: Vec<Gateway>,
    /// The address of nginx.
    pub(crate) address: SocketAddr,
    /// The log of the server `fx`, which all replicas share.
    pub(crate) log: InputLog,
    _upstream: Listening,
    _store: PostgresServer,
    folder: TestHome,
}

impl ThreeReplicas {
    /// Starts everything with these lines of `[policy]`. Prints that the test is left out without
    /// nginx or `PostgreSQL`.
    pub(crate) fn start(policy: &str) -> Option<Self> {
        if !std::path::Path::new(NGINX).exists() {
            left_out("three replicas behind nginx", &format!("no {NGINX}; install the package nginx-light"));
            return None;
        }
        let store = PostgresServer::start("")?;
        let folder = TestHome::new();
        let log = InputLog::new(&folder.path("work"), "fx");
        let upstream = Fake::http("both").logging(&log).spawn();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let replicas: Vec<Gateway> = ["one", "two", "three"]
            .map(|name| {
                let setup = GatewaySetup::new().second_caller(TOKEN).policy(policy);
                let setup = setup.server(&format!("allowed-hosts = [\"{address}\"]"));
                setup.url("fx", &upstream.url).toml(&cluster(&store, name, LINK)).start()
            })
            .into();
        for replica in &replicas {
            replica.wait_for_tools(&["fx__echo"]);
        }
        let nginx = start_nginx(&folder, address, &replicas);
        eventually("nginx listens", || TcpStream::connect(address).is_ok());
        Some(Self { nginx, replicas, address, log, _upstream: upstream, _store: store, folder })
    }

    /// Returns the URL that clients use.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Checks that nginx has sent requests to every replica.
    pub(crate) fn check_turns(&self) {
        let log = fs::read_to_string(self.folder.path("turns")).unwrap();
        for replica in &self.replicas {
            let address = replica.address.to_string();
            assert!(log.lines().any(|line| line == address), "{address} got no request");
        }
    }
}

impl Drop for ThreeReplicas {
    fn drop(&mut self) {
        end(&mut self.nginx);
    }
}

fn start_nginx(folder: &TestHome, address: SocketAddr, replicas: &[Gateway]) -> Child {
    let servers: String = replicas.iter().map(|replica| format!("server {};\n", replica.address)).collect();
    let path = |name: &str| folder.path(name).display().to_string();
    let spool = |name: &str| format!("{name}_temp_path {};\n", path(name));
    let spools: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(spool).concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\nhttp {{\n{spools}\
         log_format turns $upstream_addr;\naccess_log {} turns;\nupstream replicas {{\n{servers}keepalive 32;\n}}\n\
         server {{\nlisten {address};\nlocation / {{\nproxy_pass http://replicas;\nproxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\nproxy_set_header Host $http_host;\nproxy_buffering off;\n\
         proxy_read_timeout 1h;\n}}\n}}\n}}\n",
        path("pid"),
        path("turns")
    );
    let config = folder.write("nginx.conf", &text);
    let mut command = Command::new(NGINX);
    command.args(["-e", "stderr", "-c"]).arg(config).stdin(Stdio::null());
    command.spawn().unwrap()
}
