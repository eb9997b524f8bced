use std::collections::BTreeMap;
use std::sync::Arc;

use queue_core::outcome::Failure;
use queue_core::{EncodeError, FromMessage as _, RawTask};
use queue_redis::{Client, Interceptor, Outgoing};
use queue_worker::{Job, Route, Router};
use tower::layer::layer_fn;
use tower::{ServiceExt as _, service_fn};

use crate::error::{OpenError, SealError};
use crate::headers::{self, Binding};
use crate::keys::KeyRing;
use crate::seal::{self, Place, What};
use crate::task::SealedTask;

/// Encrypts the payloads of a client's tasks, and decrypts those of a router's; cheap to clone.
///
/// Without further ado all tasks are encrypted as a whole.
#[derive(Debug, Clone)]
pub struct Encryption {
    keys: KeyRing,
    rules: Arc<Rules>,
}

#[derive(Debug, Clone, Default)]
struct Rules {
    /// Task types, with a `*` at the end beginnings of types; empty for all.
    types: Vec<String>,
    /// Fields by task type.
    fields: Vec<(String, Vec<String>)>,
    required: bool,
}

impl Rules {
    fn of(&self, task_type: &str) -> Option<What> {
        let fits = |pattern: &String| queue_core::fits(pattern, task_type);
        if let Some((_, paths)) = self.fields.iter().find(|(pattern, _)| fits(pattern)) {
            return Some(What::Fields(paths.clone()));
        }
        (self.types.is_empty() || self.types.iter().any(fits)).then_some(What::Whole)
    }
}

impl Encryption {
    /// Encrypts everything with the newest of these keys.
    pub fn new(keys: KeyRing) -> Self {
        Self { keys, rules: Arc::default() }
    }

    /// Encrypts tasks of these types only, and those named in [`fields`](Self::fields); a `*` at the end stands for
    /// all types that begin like this. Whatever is encrypted is decrypted all the same.
    #[must_use]
    pub fn types<I: Into<String>>(mut self, types: impl IntoIterator<Item = I>) -> Self {
        Arc::make_mut(&mut self.rules).types.extend(types.into_iter().map(Into::into));
        self
    }

    /// Of tasks of this type, encrypts these fields instead of the whole payload, which has to be a JSON object: names with
    /// dots between them (`card.number`). A field that a payload does not have is passed over. What is said first
    /// about a type counts.
    #[must_use]
    pub fn fields<I: Into<String>>(mut self, task_type: impl Into<String>, paths: impl IntoIterator<Item = I>) -> Self {
        let paths = paths.into_iter().map(Into::into).collect();
        Arc::make_mut(&mut self.rules).fields.push((task_type.into(), paths));
        self
    }

    /// Has workers archive tasks that come unencrypted although their type should be, instead of working them.
    /// Belongs where every client encrypts: otherwise whoever can write into Redis can leave the headers out.
    #[must_use]
    pub fn required(mut self) -> Self {
        Arc::make_mut(&mut self.rules).required = true;
        self
    }

    /// A client that encrypts. Interceptors added before see the plain payload, those added later the
    /// encrypted one.
    #[must_use]
    pub fn client(&self, client: Client) -> Client {
        client.intercept(self.clone())
    }

    /// A router that decrypts for all handlers added so far. A task that cannot be decrypted is archived with the
    /// reason. Layers added before see the plain payload, those added later the encrypted one. What a handler adds to its
    /// batch, which it has as an argument, is encrypted.
    #[must_use]
    pub fn router<S: Clone + Send + Sync + 'static>(&self, router: Router<S>) -> Router<S> {
        let (encryption, interceptor): (_, Arc<dyn Interceptor>) = (self.clone(), Arc::new(self.clone()));
        router.layer(layer_fn(move |inner: Route| {
            let (encryption, interceptor) = (encryption.clone(), interceptor.clone());
            service_fn(move |job: Job| {
                let (encryption, inner) = (encryption.clone(), inner.clone());
                let job = job.with_extension(interceptor.clone());
                async move { inner.oneshot(encryption.decrypted(job).map_err(Failure::archive)?).await }
            })
        }))
    }

    /// Encrypts a task that does not go through a client of this kind: that of a periodic entry, or the one an aggregator
    /// returns. It is bound to its type only, since it has no id yet; give it no `unique`, because each
    /// encryption of the same payload is another one. One that is sealed already stays as it is.
    ///
    /// # Errors
    /// As [`SealError`] says.
    pub fn seal(&self, mut task: RawTask) -> Result<RawTask, SealError> {
        let place = Place { task_type: &task.task_type, queue: "", id: "" };
        let (headers, payload) = (&task.options.headers, task.payload.as_deref().unwrap_or_default());
        let said = match self.treatment(place, headers, payload)? {
            Treatment::Leave => return Ok(task),
            Treatment::Unmark => BTreeMap::new(),
            Treatment::Encrypt(what) => {
                let (sealed, said) = seal::seal(&self.keys, Binding::Type, place, &what, payload)?;
                task.payload = Some(sealed.into());
                said
            }
        };
        for name in headers::ALL {
            task.options.headers.remove(name);
        }
        task.options.headers.extend(said.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(task)
    }

    /// Decrypts a task of a group, for an aggregator that takes [`SealedTask`]s. Router layers do not reach aggregators.
    ///
    /// # Errors
    /// As [`OpenError`] says.
    pub fn open(&self, task: &SealedTask) -> Result<RawTask, OpenError> {
        let message = &task.message;
        let place = Place { task_type: &message.r#type, queue: &message.queue, id: &message.id };
        let opened = seal::open(&self.keys, place, &message.headers, &message.payload)?;
        self.check(&message.r#type, opened.is_some())?;
        let mut message = message.clone();
        if let Some(payload) = opened {
            message.payload = payload.into();
            message.headers.retain(|name, _| !headers::ALL.contains(&&**name));
        }
        RawTask::from_message(&message).map_err(|_| OpenError::NotEncrypted)
    }

    fn check(&self, task_type: &str, encrypted: bool) -> Result<(), OpenError> {
        if self.rules.required && !encrypted && self.rules.of(task_type).is_some() {
            return Err(OpenError::NotEncrypted);
        }
        Ok(())
    }

    fn decrypted(&self, job: Job) -> Result<Job, OpenError> {
        // By a router around this one.
        if job.extension::<Decrypted>().is_some() {
            return Ok(job);
        }
        let place = Place { task_type: job.task_type(), queue: job.queue(), id: job.id() };
        let opened = seal::open(&self.keys, place, job.headers(), job.payload())?;
        self.check(job.task_type(), opened.is_some())?;
        Ok(match opened {
            Some(payload) => job.with_payload(payload).with_extension(Decrypted),
            None => job,
        })
    }

    fn treatment(
        &self,
        place: Place<'_>,
        headers: &BTreeMap<String, String>,
        payload: &[u8],
    ) -> Result<Treatment, SealError> {
        let encrypt = self.rules.of(place.task_type).map(Treatment::Encrypt);
        match seal::open(&self.keys, place, headers, payload) {
            // Sealed before.
            Ok(Some(_)) => Ok(Treatment::Leave),
            Ok(None) => Ok(encrypt.unwrap_or(Treatment::Leave)),
            // Headers that were copied from another task say nothing about this one.
            Err(OpenError::Tampered { .. }) => Ok(encrypt.unwrap_or(Treatment::Unmark)),
            // Encrypting it once more would hide by which key it was encrypted first.
            Err(foreign) if encrypt.is_some() => Err(SealError::Foreign(foreign)),
            Err(_) => Ok(Treatment::Leave),
        }
    }

    fn encrypt(&self, task: &mut Outgoing<'_>) -> Result<(), SealError> {
        let place = Place { task_type: task.task_type(), queue: task.queue(), id: task.id() };
        let said = match self.treatment(place, task.headers(), task.payload())? {
            Treatment::Leave => return Ok(()),
            Treatment::Unmark => BTreeMap::new(),
            Treatment::Encrypt(what) => {
                // A node, callback or broadcast has its own id when its turn comes, and another when it runs again.
                let has_no_id = task.id() == queue_core::flow::PREFIX;
                let binding = if has_no_id { Binding::Type } else { Binding::Task };
                let (sealed, said) = seal::seal(&self.keys, binding, place, &what, task.payload())?;
                let lock = self.keys.lock_name(task.payload());
                task.set_lock_payload(&lock);
                task.set_payload(sealed);
                said
            }
        };
        for name in headers::ALL {
            task.remove_header(name);
        }
        for (name, value) in said {
            task.set_header(name, value);
        }
        Ok(())
    }
}

/// What is to be done with a payload on its way into a queue.
enum Treatment {
    Leave,
    /// Only its headers say that it is encrypted.
    Unmark,
    Encrypt(What),
}

/// The payload of this attempt is decrypted, and its headers are those of the encrypted one.
struct Decrypted;

impl Interceptor for Encryption {
    fn intercept(&self, task: &mut Outgoing<'_>) {
        if let Err(error) = self.encrypt(task) {
            task.refuse(EncodeError::new("encrypted payload", error));
        }
    }
}

#[cfg(test)]
mod tests {
    use queue_core::TaskOptions;
    use queue_core::options::compose;

    use super::*;

    fn encryption() -> Encryption {
        Encryption::new(KeyRing::new([("key", [1; 32])]).unwrap())
    }

    fn stored(task: RawTask) -> SealedTask {
        SealedTask { message: compose(task, TaskOptions::new(), 0).unwrap().message }
    }

    #[test]
    fn an_opened_task_is_as_it_was_before_it_was_sealed() {
        let task = RawTask::new("t").payload("text").header("tenant", "acme");
        let sealed = stored(encryption().seal(task.clone()).unwrap());
        let opened = encryption().open(&sealed).unwrap();
        assert_eq!((opened.payload, opened.options.headers), (task.payload, task.options.headers));
    }

    #[test]
    fn a_plain_task_is_opened_only_where_none_has_to_be_sealed() {
        let plain = stored(RawTask::new("t").payload("text"));
        assert_eq!(encryption().open(&plain).unwrap().payload.unwrap(), "text");
        assert_eq!(encryption().required().open(&plain), Err(OpenError::NotEncrypted));
        assert!(encryption().required().types(["other"]).open(&plain).is_ok());
    }
}
