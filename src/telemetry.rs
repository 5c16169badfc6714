//! stand-in
pub(crate) mod metrics {
 use std::time::Duration;
 #[derive(Clone,Debug)] pub(crate) struct Metrics; #[derive(Clone,Debug)] pub(crate) struct UpstreamMetrics;
 #[derive(Clone,Copy,Debug)] pub(crate) enum MethodLabel{ToolsCall,PromptsGet,ResourcesRead,Complete,Other}
 #[derive(Clone,Copy,Debug)] pub(crate) enum OutcomeLabel{Ok,ToolError,Error,Denied,Limited,Busy,Timeout,Cancelled,UpstreamDown,Crashed,Protocol}
 impl Metrics{ pub(crate) fn new()->Result<Self,prometheus::Error>{Ok(Self)} pub(crate) fn upstream(&self,_:&str)->UpstreamMetrics{UpstreamMetrics} pub(crate) fn forget_upstream(&self,_:&str){} pub(crate) fn render(&self)->String{String::new()} pub(crate) fn decision(&self,_:&str,_:&str){} pub(crate) fn limit_hit(&self,_:&str){} pub(crate) fn auth_failed(&self){} pub(crate) fn reloaded(&self,_:bool,_:u64){} pub(crate) fn withheld(&self,_:usize){} pub(crate) fn gauges(&self,_:usize,_:usize){} }
 impl UpstreamMetrics{ pub(crate) fn set_state(&self,_:&str){} pub(crate) fn restarted(&self){} pub(crate) fn fault(&self,_:&str){} pub(crate) fn queued(&self,_:Duration){} pub(crate) fn count(&self,_:MethodLabel,_:OutcomeLabel){} pub(crate) fn finished(&self,_:MethodLabel,_:OutcomeLabel,_:Duration,_:Option<Duration>){} pub(crate) fn items(&self,_:[usize;4]){} }
}
