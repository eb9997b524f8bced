//! How people log in.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tracing::{info, warn};

use crate::auth::{Identity, digest, random};
use crate::problem::Problem;
use crate::request::Answer;
use crate::session::{Session, locked};
use crate::users::{Memory, Users};

/// Most sessions of one person: for another one, the oldest ends.
const SESSIONS: usize = 20;
/// Attempts that may fail at once, and the time after which there is another one: of one address, and of a name at one.
const OF_ADDRESS: (u32, Duration) = (30, Duration::from_secs(2));
const OF_NAME: (u32, Duration) = (10, Duration::from_secs(6));
const RETRY_AFTER_SECS: &str = "6";
/// Most addresses and names of which that is remembered.
const REMEMBERED: usize = 10_000;
/// Most that wait while a password is looked at.
const WAITING: usize = 16;
/// Most bytes of a name and of a password.
const LONGEST_TEXT: usize = 1_024;
/// Most bytes of a request to log in: each byte of a name and of a password may be written as an escape of six.
pub(crate) const MAX_BODY: usize = 2 * 6 * LONGEST_TEXT + 256;

const COOKIE: &str = "queue-session";

/// Whose attempts are counted: those of an address, where one is known, and at it those of a name.
type Who = (Option<IpAddr>, Option<[u8; 32]>);

/// Until when each has used up what it may; the past for who has not failed of late.
#[derive(Default)]
struct Attempts(HashMap<Who, Instant>);

impl Attempts {
    /// Counts an attempt as failed, unless there were too many.
    fn take(&mut self, address: Option<IpAddr>, name: &str, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, until| *until > now);
            // As many at once are of more addresses than counting stops: that passwords are looked at one by one does.
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
        }
        let both = keys(address, name);
        let is_free = both.iter().all(|(who, (most, every))| {
            self.0.get(who).is_none_or(|until| until.saturating_duration_since(now) <= *every * (most - 1))
        });
        if is_free {
            for (who, (_, every)) in both {
                let until = self.0.entry(who).or_insert(now);
                *until = now.max(*until) + every;
            }
        }
        is_free
    }

    /// It has not failed.
    fn give_back(&mut self, address: Option<IpAddr>, name: &str) {
        for (who, (_, every)) in keys(address, name) {
            if let Some(until) = self.0.get_mut(&who)
                && let Some(before) = until.checked_sub(every)
            {
                *until = before;
            }
        }
    }
}

fn keys(address: Option<IpAddr>, name: &str) -> [(Who, (u32, Duration)); 2] {
    [((address, None), OF_ADDRESS), ((address, Some(digest(name))), OF_NAME)]
}

/// Where a request comes from, as far as attempts are counted: whoever has an address of IPv6 has all of its network.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    name: String,
    password: String,
}

/// The people, and who of them has logged in.
pub(crate) struct Login {
    users: Users,
    /// By the hashes of their cookies: the time that looking for one takes tells nothing of another one.
    sessions: Mutex<HashMap<[u8; 32], Identity>>,
    attempts: Mutex<Attempts>,
    waiting: Semaphore,
    /// One password at a time: each takes a core and 19 MiB, always the same ones.
    checking: Arc<AsyncMutex<Memory>>,
}

impl Login {
    pub(crate) fn new(users: Users) -> Self {
        let (waiting, checking) = (Semaphore::new(WAITING), Arc::default());
        Self { users, sessions: Mutex::default(), attempts: Mutex::default(), waiting, checking }
    }

    /// Who has logged in and sends this.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<Identity> {
        let sessions = locked(&self.sessions);
        let who = cookies(headers).find_map(|cookie| sessions.get(&digest(cookie)))?;
        who.session()?.goes_on().then(|| who.clone())
    }

    /// Logs somebody in, by a body `{"name": …, "password": …}`: 204 and a cookie.
    pub(crate) async fn enter(self: &Arc<Self>, parts: &Parts, body: &[u8]) -> Answer {
        let wish: Wish = serde_json::from_slice(body).map_err(|_| {
            // What serde says of it may repeat the password.
            Problem::new(StatusCode::BAD_REQUEST, "invalid-request", "the body is no JSON with name and password")
        })?;
        if wish.name.len().max(wish.password.len()) > LONGEST_TEXT {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "invalid-request",
                "the name or the password is too long",
            ));
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        let address = peer.map(counted);
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        if !locked(&self.attempts).take(address, &wish.name, Instant::now()) {
            warn!(address = peer, "an attempt to log in is refused: too many have failed");
            return Err(too_many());
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| too_many())?;
        // Also when the caller goes away, the next one has to wait for the end.
        let mut memory = self.checking.clone().lock_owned().await;
        let (login, name) = (self.clone(), wish.name.clone());
        let check = tokio::task::spawn_blocking(move || login.users.check(&wish.name, &wish.password, &mut memory));
        let found = check.await.map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                format!("the password was not looked at: {error}"),
            )
        })?;
        let Some(who) = found else {
            // A name may be a password that was typed into the wrong field.
            warn!(address = peer, "an attempt to log in has failed");
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "the name or the password is wrong"));
        };
        locked(&self.attempts).give_back(address, &name);
        info!(name = who.name(), address = peer, "somebody has logged in");
        self.end(&parts.headers);
        let is_https =
            parts.headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        Ok(with_cookie(&self.begin(who, Instant::now()), is_https, ""))
    }

    /// Ends the session of this request, if it is in one: 204.
    pub(crate) fn leave(&self, headers: &HeaderMap) -> Response {
        self.end(headers);
        with_cookie("", false, "; Max-Age=0")
    }

    /// Begins a session; the value of its cookie.
    fn begin(&self, who: Identity, now: Instant) -> String {
        let (cookie, mut sessions) = (random(), locked(&self.sessions));
        sessions.retain(|_, who| who.session().is_some_and(|session| !session.is_over(now)));
        let began = |who: &Identity| who.session().map(|session| session.began());
        let of_this = || sessions.iter().filter(|(_, other)| other.name() == who.name());
        let oldest = of_this().min_by_key(|(_, other)| began(other)).map(|(key, _)| *key);
        if of_this().count() >= SESSIONS
            && let Some(oldest) = oldest
        {
            finish(&mut sessions, &oldest);
        }
        sessions.insert(digest(&cookie), who.in_session(Arc::new(Session::new(now))));
        cookie
    }

    fn end(&self, headers: &HeaderMap) {
        let mut sessions = locked(&self.sessions);
        cookies(headers).for_each(|cookie| finish(&mut sessions, &digest(cookie)));
    }
}

/// Takes a session away; the streams in it end, too.
fn finish(sessions: &mut HashMap<[u8; 32], Identity>, key: &[u8; 32]) {
    if let Some(session) = sessions.remove(key).as_ref().and_then(Identity::session) {
        session.end();
    }
}

fn too_many() -> Problem {
    let told = "too many attempts to log in have failed, or go on; try again in some seconds";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", told).header(header::RETRY_AFTER, RETRY_AFTER_SECS)
}

/// All cookies of our name: another program of the same host may have set one, too.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Without a path: a browser then sends it to all that stands beside the address of the login, also where a proxy has changed that.
fn with_cookie(value: &str, is_https: bool, more: &str) -> Response {
    let secure = if is_https { "; Secure" } else { "" };
    let text = format!("{COOKIE}={value}; HttpOnly; SameSite=Strict{secure}{more}");
    let cookie = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

#[cfg(test)]
mod tests {
    use queue_admin::Role;

    use super::*;
    use crate::users::new_user;

    fn login() -> Login {
        Login::new(Users::parse(&new_user("ada", Role::Viewer, "correct horse").unwrap()).unwrap())
    }

    fn with(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_cookie_is_of_its_session_alone_and_ends_with_it() {
        let (login, ada) = (login(), Identity::new("ada", Role::Viewer));
        let [first, second] = [(); 2].map(|()| login.begin(ada.clone(), Instant::now()));
        assert!(first != second && first.len() == 43);
        let named = |cookie: &str| login.find(&with(&format!("a=b; {COOKIE}={cookie};c"))).is_some();
        assert!(named(&first) && named(&second));
        // One of our name that another program has set does not shut anybody out.
        assert!(login.find(&with(&format!("{COOKIE}=other; {COOKIE}={first}"))).is_some());
        for cookie in ["", "x", &first[1..], &format!("{first}="), &format!("{first}, {second}")] {
            assert!(!named(cookie), "{cookie}");
        }
        assert!(login.find(&with(&format!("x{COOKIE}={first}"))).is_none() && login.find(&HeaderMap::new()).is_none());
        let session = login.find(&with(&format!("{COOKIE}={first}"))).unwrap();
        login.leave(&with(&format!("{COOKIE}={first}")));
        assert!(!named(&first) && named(&second) && !session.session().unwrap().goes_on());
    }

    #[test]
    fn one_person_has_so_many_sessions_and_the_oldest_ends() {
        let (login, now) = (login(), Instant::now());
        let begin = |name: &str, at: usize| {
            login.begin(Identity::new(name, Role::Viewer), now + Duration::from_millis(at.try_into().unwrap()))
        };
        let other = begin("bob", 0);
        let cookies: Vec<String> = (1..=SESSIONS + 2).map(|at| begin("ada", at)).collect();
        let there: Vec<bool> =
            cookies.iter().map(|cookie| login.find(&with(&format!("{COOKIE}={cookie}"))).is_some()).collect();
        assert_eq!(there.iter().position(|there| *there), Some(2));
        assert!(there[2..].iter().all(|there| *there) && login.find(&with(&format!("{COOKIE}={other}"))).is_some());
        // What is over is forgotten when somebody comes.
        begin("eve", 13 * 3_600 * 1_000);
        assert_eq!(locked(&login.sessions).len(), 1);
    }

    #[test]
    fn whoever_guesses_has_to_wait_and_keeps_nobody_else_out() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|text| Some(counted(text.parse().unwrap())));
        let mut free = |address, name: &str, secs| attempts.take(address, name, now + Duration::from_secs(secs));
        assert_eq!((0..20).filter(|_| free(here, "ada", 0)).count(), 10);
        // Somebody else at this address, and this one at another address, still can.
        assert!(free(here, "bob", 0) && free(there, "ada", 0));
        // Refused attempts cost nothing: it is over as soon as there is room for one.
        assert!(!free(here, "ada", 5) && free(here, "ada", 6) && !free(here, "ada", 6));
        // One name after the other.
        assert_eq!((0..100).filter(|n| free(there, &n.to_string(), 0)).count(), 29);
        assert!(!free(there, "bob", 1) && free(there, "bob", 2));
        // Where no address is known, all share one.
        assert_eq!((0..100).filter(|n| free(None, &n.to_string(), 0)).count(), 30);
    }

    #[test]
    fn what_has_not_failed_does_not_count_and_what_is_remembered_has_a_bound() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..100 {
            assert!(attempts.take(None, "ada", now));
            attempts.give_back(None, "ada");
        }
        for n in 0..3 * u32::try_from(REMEMBERED).unwrap() {
            assert!(attempts.take(Some(IpAddr::V4(n.into())), "ada", now));
        }
        assert!(attempts.0.len() <= REMEMBERED + 2);
    }

    #[test]
    fn an_address_of_ipv6_counts_as_its_network() {
        let network = |text: &str| counted(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff::9"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
    }
}
