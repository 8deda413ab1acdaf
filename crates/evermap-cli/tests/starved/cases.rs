//! One case for each verb, and the files that the cases need.

use std::path::Path;

use crate::common::{page, set_age};

/// A verb with arguments that succeed in the directory of [`prepare`].
pub struct Case {
    /// Words of the verb, as listed in the help texts.
    pub verb: &'static [&'static str],
    /// `PID` stands for the id of a running process.
    pub arguments: &'static [&'static str],
    /// Allowed exit codes besides 0 and 7. Their messages need not be about the limit.
    pub also: &'static [i32],
    /// True if the verb succeeds with a warning when it cannot change the store.
    pub may_stay: bool,
    /// One in this many limits is tried. Larger for slow verbs.
    pub every: usize,
}

const fn case(verb: &'static [&'static str], arguments: &'static [&'static str]) -> Case {
    Case { verb, arguments, also: &[], may_stay: false, every: 1 }
}

impl Case {
    const fn or(self, also: &'static [i32]) -> Case {
        Case { also, ..self }
    }

    const fn or_stay(self) -> Case {
        Case { may_stay: true, ..self }
    }

    const fn slow(self) -> Case {
        Case { every: 3, ..self }
    }

    /// False for a verb that needs what this build lacks.
    pub fn is_built(&self) -> bool {
        match self.verb {
            // The verb preloads a library that another package builds.
            ["load", "run"] => {
                let program = Path::new(env!("CARGO_BIN_EXE_evermap"));
                program.with_file_name("libevermap_load_shim.so").is_file()
            }
            _ => true,
        }
    }

    /// Returns false if `--store` has another meaning for the verb.
    pub fn has_store(&self) -> bool {
        self.verb != ["sandbox", "exec"]
    }
}

/// Makes the files, and a store with an older version of `a.html` and with `b.html`.
pub fn prepare(place: &Path, run: impl Fn(&[&str])) {
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(place.join(name), bytes).unwrap();
        set_age(&place.join(name), 60);
    };
    for directory in ["pages", "tier", "into"] {
        std::fs::create_dir(place.join(directory)).unwrap();
    }
    let run = |arguments: &[&str]| run(&[&["--store", "store"], arguments].concat());
    file("a.html", page(20, "old").as_bytes());
    file("b.html", page(300, "b").as_bytes());
    file("pages/page.html", page(3, "p").as_bytes());
    run(&["parse", "a.html", "b.html"]);
    run(&["store", "backup", "backup"]);
    run(&["store", "export", "b.html", "b.object"]);
    file("a.html", page(700, "new").as_bytes());
    file("new.html", page(30, "n").as_bytes());
    file("feed.xml", b"<feed><entry/></feed>");
    file("data", &vec![7; 500_000]);
    file("trace", b"77 1700000000.000001 pread64(3</data>, \"\"..., 4096, 0) = 4096 <0.000020>\n");
}

/// Verbs without a case, and the reasons.
pub const LEFT_OUT: &[(&[&str], &str)] = &[
    (&["view"], "it needs a display"),
    (&["render"], "known defect: some limits end it with code 10 or 11, or a panic, instead of 7"),
    (&["prefetch"], "known defect: as `render`"),
    (&["sandbox", "run"], "it needs a compiled guest; `evermap-wasm` tests its limits"),
    (&["sandbox", "grant"], "it changes the access table, which `evermap-wasm` tests"),
    (&["sandbox", "revoke"], "as `grant`"),
    (&["sandbox", "list"], "as `grant`"),
];

/// Exit codes of verbs that start a command, if the limit stops that command.
const NOT_STARTED: &[i32] = &[125, 126, 127];

pub const CASES: &[Case] = &[
    case(&["parse"], &["new.html", "a.html", "feed.xml"]),
    case(&["query"], &["a.html", "p", "--text", "--stale", "refresh"]).or_stay(),
    case(&["ls"], &["-l"]),
    case(&["info"], &["b.html"]),
    case(&["store", "map"], &["b.html", "--svg", "map.svg"]),
    case(&["store", "stats"], &["b.html", "--json"]),
    case(&["rm"], &["b.html"]),
    case(&["mv"], &["b.html", "c.html"]),
    case(&["freeze"], &["b.html"]),
    case(&["store", "check"], &["--repair"]),
    case(&["store", "audit"], &["b.html"]),
    case(&["store", "backup"], &["other-backup"]),
    case(&["store", "restore"], &["backup", "--force"]),
    case(&["store", "export"], &["b.html", "b.object", "--force"]),
    case(&["store", "import"], &["b.object", "c.html"]),
    case(&["store", "rebase"], &[]),
    case(&["copy"], &["data", "b.html", "into"]),
    case(&["send"], &["data", "unix:socket"]).or(&[13]),
    case(&["receive"], &["unix:socket", "received"]).or(&[13]),
    case(&["load", "probe"], &["data", "--load"]),
    case(&["load", "run"], &["--map", "data", "--report", "--", "cat", "data"]).or(NOT_STARTED),
    case(
        &["lane", "bench"],
        &[
            "--seconds",
            "0.1",
            "--rounds",
            "1",
            "--rates",
            "24",
            "--hogs",
            "1",
            "--writers",
            "0",
            "--rungs",
            "ordinary-blocking",
        ],
    )
    .slow(),
    case(&["lane", "check"], &[]).or(&[14]),
    case(&["lane", "observe"], &["PID", "--seconds", "1", "--poll"]).slow(),
    case(&["lane", "place", "plan"], &["--tier", "tier", "data"]),
    case(&["lane", "place", "apply"], &["--tier", "tier", "data"]),
    case(&["lane", "place", "back"], &["--tier", "tier"]),
    case(&["lane", "place", "verify"], &["--tier", "tier"]),
    case(&["lane", "play"], &["--seconds", "0.1", "--no-lane", "--svg", "play.svg"]),
    case(&["lane", "run"], &["--", "true"]).or(NOT_STARTED),
    case(&["lane", "simulate", "run"], &["--frames", "50", "--svg", "run.svg"]),
    case(&["lane", "simulate", "sweep"], &["--over", "wait=0,20", "--frames", "50"]),
    case(&["lane", "simulate", "reproduce"], &["bahn2019", "--seeds", "1", "--to", "figures"]),
    case(&["lane", "simulate", "fit"], &["--targets", "bahn2019", "--steps", "1"]).slow(),
    case(&["lane", "simulate", "profile"], &["measured"]),
    case(&["lane", "status"], &[]),
    case(&["lane", "trace", "record"], &["-o", "new-trace", "--", "true"]).or(NOT_STARTED),
    case(&["lane", "trace", "import"], &["trace", "-o", "new-trace"]),
    case(&["lane", "trace", "stat"], &["trace"]),
    case(&["lane", "undo"], &[]),
    case(&["bench", "transfer"], &["--sizes", "4K,1M", "--rounds", "1"]),
    case(&["bench", "load"], &["data", "--rounds", "1"]),
    case(&["sandbox", "exec"], &["--read", "/", "--", "cat", "data"]).or(NOT_STARTED),
    case(&["demo"], &["--pages", "pages"]).slow(),
    case(&["completions"], &["bash"]),
];
