//! Runs nginx as a web server that sends files with `sendfile`, on the loopback device, as one
//! process.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::Outcome;
use harness::process::find_program;

use crate::network::{Taken, Waking, listens, with_free_port};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Server of one folder's files. It is killed on drop.
pub struct Nginx {
    child: Child,
    address: String,
}

impl Nginx {
    /// Starts the server. `own` is an empty folder for its own files; `files` is the folder to
    /// serve.
    pub fn start(own: &Path, files: &Path) -> Outcome<Nginx> {
        let program = find_program("nginx").ok_or("`nginx` is not installed")?;
        let address = with_free_port("127.0.0.1:0")?;
        let settings = own.join("nginx.conf");
        std::fs::write(&settings, configuration(own, files, &address))?;
        let mut command = Command::new(program);
        command.arg("-p").arg(own).arg("-c").arg(&settings).arg("-e").arg(own.join("errors"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: the closure makes one system call, which is allowed between fork and
        // exec.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::KILL);
                Ok(rustix::process::set_parent_process_death_signal(signal)?)
            });
        }
        let mut server = Nginx { child: command.spawn()?, address };
        let start = Instant::now();
        while !listens(&server.address) {
            if server.child.try_wait()?.is_some() || start.elapsed() > TIMEOUT {
                let errors = std::fs::read_to_string(own.join("errors")).unwrap_or_default();
                return Err(format!("nginx does not listen: {}", errors.trim()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Sends one file to `discard`. Returns its report, and the server's processor time in ns.
    pub fn send(&self, discard: &Path, waking: Waking, name: &str) -> Outcome<(Taken, u64)> {
        let before = self.cpu_ns()?;
        let mut command = Command::new(discard);
        command.args(waking.options()).args(["--get", name, &self.address]);
        let output = command.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string().into());
        }
        let taken = serde_json::from_slice(&output.stdout)?;
        Ok((taken, self.cpu_ns()? - before))
    }

    fn cpu_ns(&self) -> Outcome<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let first = text.split_whitespace().next().and_then(|first| first.parse().ok());
        first.ok_or_else(|| "cannot read nginx's processor time from schedstat".into())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(own: &Path, files: &Path, address: &str) -> String {
    let own = own.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders: String =
        kinds.iter().map(|kind| format!("    {kind}_temp_path \"{own}/{kind}\";\n")).collect();
    format!(
        "daemon off;\nmaster_process off;\npid \"{own}/pid\";\n\
         events {{ worker_connections 64; }}\n\
         http {{\n    access_log off;\n    sendfile on;\n    tcp_nopush on;\n{folders}    \
         server {{ listen {address}; root \"{}\"; }}\n}}\n",
        files.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_writes_only_to_its_own_folder() {
        let text = configuration(Path::new("/own"), Path::new("/files"), "127.0.0.1:80");
        assert_eq!(text.matches("_temp_path \"/own/").count(), 5);
        assert!(text.contains("root \"/files\"") && text.contains("sendfile on"), "{text}");
    }
}
