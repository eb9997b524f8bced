//! How requests are told apart.

use std::sync::Arc;

use axum::http::request::Parts;
use queue_admin::Role;

use crate::auth::{Identity, Tokens};
use crate::login::Login;

pub(crate) type Identify = dyn Fn(&Parts) -> Option<Identity> + Send + Sync;

/// How requests are told apart.
#[derive(Clone)]
pub(crate) enum Auth {
    Open,
    /// By tokens, and by people who have logged in.
    Known(Tokens, Option<Arc<Login>>),
    Custom(Arc<Identify>),
}

impl Auth {
    pub(crate) fn identify(&self, parts: &Parts) -> Option<Identity> {
        match self {
            Self::Open => Some(Identity::new("anybody", Role::Admin)),
            Self::Known(tokens, login) => tokens.find(&parts.headers).or_else(|| login.as_ref()?.find(&parts.headers)),
            Self::Custom(identify) => identify(parts),
        }
    }

    /// Where people log in.
    pub(crate) fn login(&self) -> Option<&Arc<Login>> {
        if let Self::Known(_, login) = self { login.as_ref() } else { None }
    }

    /// The same with these tokens, these people, or both.
    pub(crate) fn with(self, tokens: Option<Tokens>, login: Option<Arc<Login>>) -> Self {
        let (old_tokens, old_login) =
            if let Self::Known(tokens, login) = self { (tokens, login) } else { (Tokens::default(), None) };
        Self::Known(tokens.unwrap_or(old_tokens), login.or(old_login))
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}
