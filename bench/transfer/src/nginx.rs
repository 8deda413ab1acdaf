//! A web server that sends files with `sendfile`, as the field does: nginx, on the loopback device, one process.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Outcome;
use common::process::find_program;

use crate::network::{Taken, Waking, listens, with_free_port};

const PATIENCE: Duration = Duration::from_secs(10);

/// A server of one folder's files. It ends with this value.
pub struct Nginx {
    child: Child,
    address: String,
}

impl Nginx {
    /// `own` is an empty folder for what it writes; `files` is what it serves.
    pub fn start(own: &Path, files: &Path) -> Outcome<Nginx> {
        let program = find_program("nginx").ok_or("there is no `nginx`")?;
        let address = with_free_port("127.0.0.1:0")?;
        let settings = own.join("nginx.conf");
        std::fs::write(&settings, configuration(own, files, &address))?;
        let mut command = Command::new(program);
        command.arg("-p").arg(own).arg("-c").arg(&settings).arg("-e").arg(own.join("errors"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::KILL);
                Ok(rustix::process::set_parent_process_death_signal(signal)?)
            });
        }
        let mut server = Nginx { child: command.spawn()?, address };
        let start = Instant::now();
        while !listens(&server.address) {
            if server.child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                let errors = std::fs::read_to_string(own.join("errors")).unwrap_or_default();
                return Err(format!("nginx does not listen: {}", errors.trim()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Has it send a file to `discard`; what came, and the processor time that the server took, in ns.
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
        first.ok_or_else(|| "the kernel does not say what nginx took".into())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // One that is gone already is no matter.
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
    fn it_writes_nothing_outside_of_its_folder() {
        let text = configuration(Path::new("/own"), Path::new("/files"), "127.0.0.1:80");
        assert_eq!(text.matches("_temp_path \"/own/").count(), 5);
        assert!(text.contains("root \"/files\"") && text.contains("sendfile on"), "{text}");
    }
}
