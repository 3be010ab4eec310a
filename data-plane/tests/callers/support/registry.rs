//! A registry from wire messages.

use std::{sync::Arc, time::Duration};

use spareline_core::{
    Revision,
    items::{Item, Items},
    view::{Clock, View},
};
use spareline_proto::registry::v1 as pb;

/// Items with ids given in order.
#[derive(Default)]
pub struct Registry {
    items: Vec<Item>,
    channels: i64,
    credentials: i64,
}

/// A channel of the model `m` at that address, with one key.
pub fn channel(name: &str, base_url: &str) -> Made {
    Made {
        keys: vec![format!("sk-{name}")],
        channel: pb::Channel {
            name: name.into(),
            provider: "openai_compatible".into(),
            base_url: base_url.into(),
            models: vec![pb::ModelEntry { model: "m".into(), ..Default::default() }],
            ..Default::default()
        },
    }
}

pub struct Made {
    pub channel: pb::Channel,
    keys: Vec<String>,
}

impl Made {
    pub fn priority(mut self, priority: i32) -> Self {
        self.channel.priority = priority;
        self
    }

    pub fn keys(mut self, keys: &[&str]) -> Self {
        self.keys = keys.iter().map(|k| (*k).to_owned()).collect();
        self
    }

    pub fn provider(mut self, provider: &str) -> Self {
        self.channel.provider = provider.into();
        self
    }

    pub fn upstream_model(mut self, name: &str) -> Self {
        self.channel.models[0].upstream_model = name.into();
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut pb::Channel)) -> Self {
        change(&mut self.channel);
        self
    }

    /// Limits of this channel, in milliseconds: first content, response, idle.
    pub fn limits_ms(mut self, first_content: u64, response: u64, idle: u64) -> Self {
        let d = |ms| prost_types::Duration::try_from(Duration::from_millis(ms)).ok();
        self.channel.attempt_policy = Some(pb::AttemptPolicy {
            first_content_timeout: d(first_content),
            response_timeout: d(response),
            idle_timeout: d(idle),
            ..Default::default()
        });
        self
    }
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn channel(mut self, made: Made) -> Self {
        let mut channel = made.channel;
        self.channels += 1;
        channel.channel_id = self.channels;
        channel.spec_revision = 1;
        for secret in made.keys {
            self.credentials += 1;
            channel.credential_ids.push(self.credentials);
            self.items.push(Item::Credential(Arc::new(pb::Credential {
                credential_id: self.credentials,
                secret,
                fingerprint: String::new(),
                revision: 1,
            })));
        }
        self.items.push(Item::Channel(Arc::new(channel)));
        self
    }

    pub fn policy(mut self, policy: pb::Policy) -> Self {
        self.items.push(Item::Policy(Arc::new(pb::Policy { revision: 1, ..policy })));
        self
    }

    /// An operator takes something out.
    pub fn disabled(mut self, subject: pb::subject::Kind) -> Self {
        self.items.push(Item::Status(Arc::new(pb::Status {
            subject: Some(pb::Subject { kind: Some(subject) }),
            state: pb::ServingState::Disabled.into(),
            cause: pb::Cause::Operator.into(),
            revision: 1,
            ..Default::default()
        })));
        self
    }

    pub fn view(self) -> View {
        let items: Items = self.items.into_iter().collect();
        let server_time = Some(std::time::SystemTime::now().into());
        let clock = Clock { server_time, now: Duration::ZERO };
        let (view, rejections) = View::empty(1).replace(&items, "test", Revision(1), clock);
        assert!(rejections.is_empty(), "{rejections:#?}");
        view
    }
}
