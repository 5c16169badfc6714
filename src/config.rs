//! stand-in
pub(crate) mod secret { #[derive(Clone,PartialEq)] pub(crate) struct Secret(pub String); impl Secret{ pub(crate) fn expose(&self)->&str{&self.0} } impl std::fmt::Debug for Secret{fn fmt(&self,f:&mut std::fmt::Formatter<'_>)->std::fmt::Result{f.write_str("***")}} }
pub(crate) mod plan { use super::*; #[derive(Debug,Clone)] pub(crate) struct Plan{pub start:Vec<UpstreamName>,pub stop:Vec<UpstreamName>,pub replace:Vec<UpstreamName>,pub needs_restart:Vec<String>} impl std::fmt::Display for Plan{fn fmt(&self,f:&mut std::fmt::Formatter<'_>)->std::fmt::Result{f.write_str("plan")}} pub(crate) fn diff(_:&Config,_:&Config)->Plan{unimplemented!()} }
use std::{net::SocketAddr,path::PathBuf,time::Duration};
use url::Url; use secret::Secret;
pub(crate) use crate::catalog::name::UpstreamName; use crate::policy::PolicySpec;
pub(crate) type Warning=String;
#[derive(Clone,Debug)] pub(crate) struct Config{pub path:Option<PathBuf>,pub server:Server,pub metrics:Option<SocketAddr>,pub admin:Admin,pub naming:Naming,pub upstreams:Vec<Upstream>,pub policy:PolicySpec,pub policy_stated:bool,pub profiles:Vec<Profile>}
#[derive(Clone,Debug)] pub(crate) struct Admin{pub socket:Option<PathBuf>,pub group:Option<String>,pub users:Vec<String>}
#[derive(Clone,Copy,Debug,PartialEq)] pub(crate) enum Uris{Keep,Prefix}
#[derive(Clone,Debug)] pub(crate) struct Naming{pub uris:Uris,pub max_length:usize}
#[derive(Clone,Debug)] pub(crate) struct Profile{pub name:String,pub upstreams:Vec<UpstreamName>,pub tools:Filter,pub prompts:Filter,pub resources:Filter,pub transparent:bool}
#[derive(Clone,Debug)] pub(crate) enum Auth{Token{tokens:Vec<(String,Secret)>},None}
#[derive(Clone,Debug)] pub(crate) struct Server{pub listen:Vec<SocketAddr>,pub endpoint:String,pub legacy_sse:bool,pub allowed_hosts:Vec<String>,pub allowed_origins:Vec<String>,pub auth:Auth,pub limits:Limits,pub drain_timeout:Duration}
#[derive(Clone,Debug)] pub(crate) struct Limits{pub connections:usize,pub head_bytes:usize,pub header_fields:usize,pub head_timeout:Duration,pub body_timeout:Duration,pub body_bytes:usize,pub depth:usize,pub nodes:usize,pub in_flight:usize,pub sessions:usize,pub sessions_per_caller:usize,pub session_idle:Duration,pub session_max:Duration,pub keepalive:Duration}
#[derive(Clone,Debug,PartialEq)] pub(crate) enum Transport{Auto,StreamableHttp,Sse}
#[derive(Clone,Debug)] pub(crate) enum Target{Stdio{command:Vec<String>,env:Vec<(String,Secret)>,cwd:Option<PathBuf>},Http{url:Url,transport:Transport,headers:Vec<(String,Secret)>}}
#[derive(Clone,Copy,Debug,PartialEq)] pub(crate) enum EraChoice{Auto,Legacy,Modern}
#[derive(Clone,Copy,Debug,PartialEq)] pub(crate) enum Start{Eager,Lazy}
#[derive(Clone,Debug)] pub(crate) struct Filter{pub allow:Vec<String>,pub deny:Vec<String>,pub rename:Vec<(String,String)>}
#[derive(Clone,Debug)] pub(crate) struct Upstream{pub name:UpstreamName,pub target:Target,pub era:EraChoice,pub start:Start,pub call_timeout:Duration,pub call_max:Duration,pub start_timeout:Duration,pub max_in_flight:usize,pub queue:usize,pub queue_timeout:Duration,pub prefix:String,pub tools:Filter,pub prompts:Filter,pub resources:Filter}
impl Upstream{pub(crate) fn launch_identity(&self)->String{String::new()}}
