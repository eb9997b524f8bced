//! People with passwords.

use std::fmt;

use argon2::password_hash::PasswordHasher as _;
use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use queue_admin::Role;

use crate::auth::{Identity, digest, lines};

/// People from a file. Each line is `name:role:hash` or `name:role:hash:queues`: the role is `viewer`, `operator` or `admin`, the
/// hash is that of the password by Argon2id as a PHC text (`$argon2id$v=19$…`), and the queues are names with commas between
/// them, with a `*` at the end of those that begin like this. Blank lines and those that begin with `#` do not count.
#[derive(Clone)]
pub struct Users {
    known: Vec<(PasswordHash, Identity)>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|(_, identity)| identity)).finish()
    }
}

/// A line that is of nobody.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {reason}; a line is written name:viewer|operator|admin:$argon2id$…[:queue,queue*]")]
pub struct UserError {
    line: usize,
    reason: &'static str,
}

/// A password that cannot be hashed, such as one of more than 4 GiB.
#[derive(Debug, thiserror::Error)]
#[error("the password cannot be hashed: {0}")]
pub struct HashError(argon2::password_hash::Error);

/// The line of somebody for a file of [`Users`]. It gives nobody the password, which only guessing finds: so it should not be short.
///
/// # Errors
/// When the password is longer than the hash can take.
pub fn new_user(name: &str, role: Role, password: &str) -> Result<String, HashError> {
    let salt = uuid::Uuid::new_v4().into_bytes();
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt).map_err(HashError)?;
    Ok(format!("{name}:{}:{hash}", role.as_str()))
}

fn hash(text: &str) -> Result<PasswordHash, &'static str> {
    let hash = PasswordHash::new(text).map_err(|_| "the hash is no PHC text")?;
    let is_whole = hash.salt.is_some() && hash.hash.is_some() && Params::try_from(&hash).is_ok();
    let is_known = hash.algorithm.as_str() == "argon2id" && hash.version == Some(19);
    if is_whole && is_known { Ok(hash) } else { Err("the hash is not by argon2id, version 19, with salt and output") }
}

/// What hashing needs. It is kept: an allocator keeps such blocks for each thread that has hashed, once they are freed.
#[derive(Default)]
pub(crate) struct Memory(Vec<Block>);

impl Memory {
    /// The hash of a password, made as this one was.
    fn hash(&mut self, password: &str, like: &PasswordHash) -> Option<Output> {
        let (params, salt) = (Params::try_from(like).ok()?, like.salt.as_ref()?);
        let (blocks, mut bytes) = (params.block_count(), [0; Output::MAX_LENGTH]);
        let output = bytes.get_mut(..params.output_len()?)?;
        if self.0.len() < blocks {
            self.0.resize_with(blocks, Block::new);
        }
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon2.hash_password_into_with_memory(password.as_bytes(), salt, output, &mut self.0[..blocks]).ok()?;
        Output::new(output).ok()
    }
}

impl Users {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// When a line is none of those, a name stands there twice, or there is nobody at all.
    pub fn parse(text: &str) -> Result<Self, UserError> {
        let known = lines(text, hash).map_err(|(line, reason)| UserError { line, reason })?;
        Ok(Self { known })
    }

    /// Whose name and password these are. It takes some 50 ms of a core and 19 MiB, and as long for a name that is of nobody.
    pub(crate) fn check(&self, name: &str, password: &str, memory: &mut Memory) -> Option<Identity> {
        let found = self.known.iter().find(|(_, identity)| identity.name() == name);
        // For a name of nobody, the password of somebody is looked at, always of the same: hashes may differ in what they cost.
        let other = usize::from(digest(name)[0]) % self.known.len();
        let (hash, identity) = found.unwrap_or(&self.known[other]);
        let is_right = memory.hash(password, hash).is_some_and(|output| Some(output) == hash.hash);
        (is_right && found.is_some()).then(|| identity.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_known_by_name_and_password_together() {
        let line = |name: &str, password: &str| new_user(name, Role::Operator, password).unwrap();
        let (ada, bob) = (line("ada", "correct horse"), line("bob", "battery staple"));
        assert!(!ada.contains("horse") && line("ada", "correct horse") != ada, "each has a salt of its own");
        let users = Users::parse(&format!("# people\n\n{ada}\n{bob}:mail*,low\n")).unwrap();
        let mut memory = Memory::default();
        let mut check = |name: &str, password: &str| users.check(name, password, &mut memory);
        let found = check("ada", "correct horse").unwrap();
        assert_eq!((found.name(), found.role(), found.sees("anything")), ("ada", Role::Operator, true));
        let bob = check("bob", "battery staple").unwrap();
        assert_eq!((bob.sees("mail:fast"), bob.sees("low"), bob.sees("lower")), (true, true, false));
        // Somebody's password is that of nobody else, not even of a name that is of nobody, whose check looks at a hash of the file.
        for name in
            ["bob", "eve", "Ada", "", "ada "].into_iter().map(str::to_owned).chain((0..8).map(|n| n.to_string()))
        {
            assert!(check(&name, "correct horse").is_none(), "{name:?}");
            assert!(name == "bob" || check(&name, "battery staple").is_none(), "{name:?}");
        }
        assert!(!format!("{users:?}").contains("argon2"), "nobody reads hashes in a log");
    }

    /// For each thread that had hashed, an allocator kept the 19 MiB.
    #[test]
    fn all_passwords_are_hashed_in_the_same_memory() {
        let cheap = Params::new(64, 1, 2, Some(16)).unwrap();
        let cheap = Argon2::from(cheap).hash_password_with_salt(b"battery staple", &[7; 16]).unwrap();
        let ada = new_user("ada", Role::Viewer, "correct horse").unwrap();
        let users = Users::parse(&format!("{ada}\nbob:viewer:{cheap}")).unwrap();
        let (mut memory, mut places) = (Memory::default(), std::collections::BTreeSet::new());
        for _ in 0..2 {
            for (name, password, is_right) in
                [("ada", "correct horse", true), ("bob", "battery staple", true), ("bob", "correct horse", false)]
            {
                assert_eq!(users.check(name, password, &mut memory).is_some(), is_right, "{name}");
                places.insert((memory.0.as_ptr(), memory.0.len()));
            }
        }
        let params = Params::default();
        assert_eq!(places.into_iter().map(|(_, blocks)| blocks).collect::<Vec<_>>(), [params.block_count()]);
    }

    #[test]
    fn a_line_that_is_of_nobody_is_refused_by_its_number_and_its_hash_is_not_repeated() {
        let good = new_user("ada", Role::Admin, "correct horse").unwrap();
        let hash = good.strip_prefix("ada:admin:").unwrap();
        let secret = hash.rsplit('$').next().unwrap();
        for line in [
            "eve".to_owned(),
            "eve:admin".to_owned(),
            format!("eve:root:{hash}"),
            good.clone(),
            format!(":admin:{hash}"),
            format!("eve:admin:{secret}"),
            format!("eve:admin:{}", hash.replace("argon2id", "argon2i")),
            format!("eve:admin:{}", hash.replace("argon2id", "scrypt")),
            format!("eve:admin:{}", hash.replace("v=19", "v=16")),
            format!("eve:admin:{}", hash.replace("m=", "m=4294967296")),
            format!("eve:admin:{}", hash.replace("t=2", "t=0")),
            format!("eve:admin:{}", hash.strip_suffix(secret).unwrap()),
            format!("eve:admin:{hash}:a,,b"),
        ] {
            let error = Users::parse(&format!("{good}\n# more\n{line}")).unwrap_err().to_string();
            assert!(error.starts_with("line 3: ") && !error.contains(secret), "{line}: {error}");
        }
        assert!(Users::parse("").is_err() && Users::parse("# nobody").is_err());
    }
}
