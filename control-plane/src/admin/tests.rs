//! The services over a real database; the calls that clients see differently go over a real connection.

mod calls;
mod channels;
mod credentials;
mod explain;
mod odd;

use std::sync::{Arc, Mutex};

use spareline_proto::registry::v1::{Channel, ModelEntry};
use tonic::{Code, Request, Response, Status};

use super::*;
use crate::postgres::TestDatabase;
use crate::store::StoreOptions;

/// A provider that answers as it is told.
#[derive(Default)]
pub(crate) struct FakeProbing(pub(crate) Mutex<Option<Verified>>);

#[tonic::async_trait]
impl Probing for FakeProbing {
    async fn probe_now(&self, request: ProbeNowRequest) -> Result<ProbeNowResponse, Status> {
        Ok(ProbeNowResponse { scanned: 1, recovered: request.channels, still_disabled: Vec::new() })
    }

    async fn verify(&self, _: Channel, _: Secret) -> Verified {
        self.0.lock().unwrap().clone().unwrap_or(Verified::Good)
    }
}

pub(crate) async fn admin() -> (Admin, Arc<FakeProbing>) {
    let database = TestDatabase::new().await.unwrap();
    let store = Store::connect(StoreOptions::new(database.options)).await.unwrap();
    let probing = Arc::new(FakeProbing::default());
    (Admin::new(store, Arc::clone(&probing) as Arc<dyn Probing>), probing)
}

/// The shortest possible channel.
fn shortest(name: &str) -> CreateChannelRequest {
    CreateChannelRequest {
        channel: Some(Channel {
            name: name.into(),
            provider: "openai".into(),
            base_url: "https://api.example.com".into(),
            models: vec![ModelEntry { model: "m".into(), ..ModelEntry::default() }],
            ..Channel::default()
        }),
        secrets: vec![format!("sk-canary-{name}")],
        ..CreateChannelRequest::default()
    }
}

async fn created(admin: &Admin, request: CreateChannelRequest) -> Channel {
    admin.create_channel(Request::new(request)).await.unwrap().into_inner().channel.unwrap()
}

async fn got(admin: &Admin, name: &str) -> GetChannelResponse {
    admin.get_channel(Request::new(GetChannelRequest { channel: name.into() })).await.unwrap().into_inner()
}

fn code<T>(answer: Result<Response<T>, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

#[track_caller]
fn refused<T>(answer: Result<Response<T>, Status>, wanted: Code, part: &str) {
    let (code, message) = code(answer);
    assert_eq!(code, wanted, "{message}");
    assert!(message.contains(part), "`{part}` is not in `{message}`");
}

fn subject(channel: &str, credential: Option<&str>, model: Option<&str>) -> Option<SubjectName> {
    Some(SubjectName {
        channel: channel.into(),
        credential: credential.map(Into::into),
        model: model.map(Into::into),
    })
}
