//! The closed sets of words that code, wire, SQL, logs and metrics share.
//!
//! Each enum has `as_str` (the word) and `FromStr` (the word back). Nothing else belongs here.

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every member, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word { $($word => Ok(Self::$variant),)+ _ => Err(UnknownWord { expected: &[$($word),+] }) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// A word outside its closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", .expected.join(", "))]
pub struct UnknownWord {
    /// The words that would do.
    pub expected: &'static [&'static str],
}

words! {
    /// The dialect an upstream speaks; selects the request builder.
    Provider {
        /// OpenAI itself.
        OpenAi = "openai",
        /// Anything that copies OpenAI's HTTP API.
        OpenAiCompatible = "openai_compatible",
        /// Azure OpenAI: deployments, `api-key`, `api-version`.
        AzureOpenAi = "azure_openai",
        /// Anthropic's own API.
        Anthropic = "anthropic",
    }
}

words! {
    /// What a caller may ask of a model.
    Endpoint {
        /// `/v1/chat/completions`.
        ChatCompletions = "chat_completions",
        /// `/v1/completions`.
        Completions = "completions",
        /// `/v1/embeddings`.
        Embeddings = "embeddings",
        /// `/v1/responses`.
        Responses = "responses",
        /// `/v1/messages`.
        Messages = "messages",
        /// `/v1/images/*`.
        Images = "images",
        /// `/v1/audio/*`.
        Audio = "audio",
        /// `/v1/moderations`.
        Moderations = "moderations",
        /// `/v1/rerank`.
        Rerank = "rerank",
    }
}

words! {
    /// What the classifier made of an attempt; also the attempt's outcome in logs, headers and metrics.
    Class {
        /// Nobody is to blame and nothing follows: the caller left, or the fault is ours.
        None = "none",
        /// It worked.
        Ok = "ok",
        /// The request is at fault: pass the answer on.
        Transparent = "transparent",
        /// A passing fault of the upstream.
        Retryable = "retryable",
        /// Rate limited.
        Throttle = "throttle",
        /// The key or the account is dead.
        Disable = "disable",
        /// This channel, with this key, does not serve this model.
        ModelUnavailable = "model_unavailable",
        /// This channel lacks that endpoint for that model; local knowledge, disables nobody.
        EndpointMissing = "endpoint_missing",
    }
}

words! {
    /// What the evidence condemns: the narrowest that fits.
    Scope {
        /// Nothing.
        None = "none",
        /// The request itself.
        Request = "request",
        /// One endpoint of one model on one channel.
        Endpoint = "endpoint",
        /// One model on one channel, with one key where one was used.
        Ability = "ability",
        /// One credential, wherever it is listed.
        Credential = "credential",
        /// The channel.
        Channel = "channel",
    }
}

words! {
    /// Why a subject is out, mildest first: a stronger cause replaces a weaker one.
    Cause {
        /// Too many failures in a row, and a probe failed too.
        Unhealthy = "unhealthy",
        /// Rate limited until a time.
        Throttled = "throttled",
        /// The provider does not know the model.
        ModelUnavailable = "model_unavailable",
        /// Balance or hard quota exhausted.
        Quota = "quota",
        /// The provider rejects the key or the account.
        Credential = "credential",
        /// A human's decision.
        Operator = "operator",
    }
}
