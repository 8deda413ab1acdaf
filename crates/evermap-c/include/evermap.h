/*
 * evermap.h - persistent heaps in files, mapped at fixed addresses, committed atomically.
 *
 * CONTENTS. Rules for all functions: RESULTS, HANDLES, UNITS, THREADS, FORK, CALLBACKS (below).
 * Types: Versions and limits; Statuses, modes and levels; Stores and objects; Tools; Callbacks.
 * Functions: Errors; Stores; Objects; Shared objects; The root; Pointers out of objects; Commits;
 * Write protection; The heap; Tools. Each part begins with a line of dashes.
 *
 * A store is a directory of named objects. An object is a heap in a file, mapped at the same
 * addresses in every process: data that a program builds there is available in the next run, with
 * its pointers, without loading. Between commits the program works at raw memory speed; em_commit()
 * makes all changes durable, atomically.
 *
 *     em_store *store;
 *     em_object *object;
 *     if (em_store_open_or_create("my.store", NULL, &store) != EM_OK)
 *         return fprintf(stderr, "%s\n", em_last_error_message()), 1;
 *     em_object_create(store, "words");               (EM_ALREADY_EXISTS in the second run)
 *     if (em_object_open(store, "words", EM_WRITE, NULL, &object) != EM_OK) ...
 *     struct list *list = em_root(object);            (NULL in the first run)
 *     if (list == NULL) {
 *         list = em_calloc(object, 1, sizeof *list);
 *         em_set_root(object, list, sizeof *list, NULL, "list of words");
 *     }
 *     ... list->first = em_malloc(object, sizeof *list->first); ...
 *     em_commit(object, NULL);
 *     em_object_close(object);
 *     em_store_close(store);
 *
 * Link with `pkg-config --cflags --libs evermap`, or with CMake's find_package(evermap).
 *
 * RESULTS. A function that can fail returns an em_status (EM_OK is 0), or a pointer that is NULL on
 * failure. A failure sets the calling thread's error detail: em_last_error() returns the status,
 * em_last_error_message() a sentence with the cause, the place and the remedy; errno is set too.
 * Success leaves all three unchanged. Results that are returned through a pointer are written on
 * success only, unless the function says otherwise. A NULL where a pointer is required is
 * EM_INVALID_ARGUMENT; so is a text that is not UTF-8 (a path may be any bytes). No Rust panic
 * leaves the library: it becomes EM_INTERNAL, which is a bug worth reporting.
 *
 * HANDLES. em_store and em_object are opaque numbers, never dereferenced and never reused. Close
 * each opened handle once. Every function returns EM_CLOSED for NULL, for a closed handle and for a
 * value that never was one. An object outlives the handle of its store: closing a store leaves its
 * objects open.
 *
 * UNITS. Sizes are in bytes, times in the unit that ends the name (_ms, _ns). Input texts are read
 * during the call and not kept; output texts in a buffer end with a zero byte.
 *
 * THREADS. Every function may be called from any thread. Many threads may allocate and free in one
 * object at the same time. em_commit, em_rollback, em_checkpoint, em_sync, em_reserve, em_release,
 * em_shrink, em_refresh and em_object_close need exclusive use of the object. When two threads call
 * them at the same time, one gets EM_BUSY and its call changes nothing. They also return EM_BUSY
 * while another thread is inside any other function with the same object, and every other function
 * called during that time returns it as well (em_free aborts). No thread may store to the object's
 * memory during em_commit and em_rollback: the library cannot detect this, and the effect of such a
 * store on the commit is unspecified. No function may be called from a signal handler.
 *
 * FORK. A child of fork() reads the objects that its parent had open, as they were at the fork: an
 * object open for reading keeps its commit, and an object open for writing keeps its memory,
 * whatever the parent does. A store to the latter faults, or stays in the child
 * (em_write_options.in_children). The child may call em_root(), em_root_size(), em_root_tag(),
 * em_root_description(), em_object_base(), em_object_name(), em_contains(), em_sequence(),
 * em_read_lock(), em_read_unlock() and em_object_close(), and em_info() of an object that is open
 * for reading. Every other function that can fail returns EM_FORKED, or EM_READ_ONLY if it would in
 * the parent. em_read_lock() also returns EM_FORKED if another thread was storing to the object at
 * the fork. A child never waits for a thread of its parent. It counts as a reader until it closes
 * the object, execs or ends, and holds none of its parent's locks. Programs that are started
 * (posix_spawn(), popen(), vfork() and exec) may get arguments that lie in an object. A child of a
 * bare clone(), which runs no handlers, keeps the memory of objects open for reading. It has no
 * other objects (access faults; system calls return EFAULT), and every function returns EM_FORKED
 * except those of the heap, which fault.
 *
 * CALLBACKS run in the calling thread before the function returns. They may call the library, and
 * must return: no longjmp, no exception.
 */
#ifndef EVERMAP_H
#define EVERMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions and limits ------------------------------------------------------------------- */

/* Version of this header; em_version() is the library's. */
#define EM_VERSION_MAJOR 0
#define EM_VERSION_MINOR 1
#define EM_VERSION_PATCH 0

/* Maximum bytes of an object name, and bytes of a buffer that holds any name with its zero byte. */
#define EM_NAME_BYTES_MAX 255
#define EM_NAME_BUFFER_BYTES 256
/* Bytes of a root's tag and of an application key. */
#define EM_TAG_BYTES 16
/* Bytes of a buffer for any description of a root; longer ones are truncated. */
#define EM_DESCRIPTION_BUFFER_BYTES 1025
/* Largest single allocation; a larger one is EM_BAD_ALLOCATION. */
#define EM_ALLOCATION_BYTES_MAX ((uint64_t)1 << 46)

/* ---- Statuses, modes and levels ------------------------------------------------------------ */

/** Reason of a failure. Numbers never change their meaning; later versions may add some. The
 * errno of each status is in brackets. */
typedef enum em_status {
    EM_OK = 0,
    EM_NO_STORE = 1,            /**< no store at this path [ENOENT] */
    EM_STORE_EXISTS = 2,        /**< other files exist at the path [EEXIST] */
    EM_NOT_FOUND = 3,           /**< the store has no object of this name [ENOENT] */
    EM_ALREADY_EXISTS = 4,      /**< the store has an object of this name [EEXIST] */
    EM_INVALID_NAME = 5,        /**< the text cannot name an object [EINVAL] */
    EM_BUSY = 6,                /**< another thread or process uses it, see THREADS [EBUSY] */
    EM_ADDRESS_TAKEN = 7,       /**< the process uses the store's addresses [EADDRINUSE] */
    EM_FOREIGN = 8,             /**< not an Evermap file [EILSEQ] */
    EM_NEWER_FORMAT = 9,        /**< written by a newer Evermap [EPROTONOSUPPORT] */
    EM_DAMAGED = 10,            /**< the file contradicts itself [EUCLEAN] */
    EM_SCHEMA_MISMATCH = 11,    /**< the root is of another type [EPROTOTYPE] */
    EM_OTHER_APPLICATION = 12,  /**< the object belongs to another application [EPERM] */
    EM_DISK_FULL = 13,          /**< no space left; nothing was lost [ENOSPC] */
    EM_NOT_PERMITTED = 14,      /**< permissions, or a read-only file system [EACCES] */
    EM_OUT_OF_ADDRESSES = 15,   /**< no free addresses of this size [ENOMEM] */
    EM_BAD_ALLOCATION = 16,     /**< a size or an alignment that no object can provide [ENOMEM] */
    EM_INVALID_FREE = 17,       /**< not an allocated block of the object [EFAULT] */
    EM_BAD_ROOT = 18,           /**< the root is not a block of the object, or too small [EFAULT] */
    EM_CAPACITY_OVERFLOW = 19,  /**< a collection cannot grow further [EOVERFLOW] */
    EM_OUT_OF_BOUNDS = 20,      /**< an index or a range is out of bounds [ERANGE] */
    EM_DURABILITY_UNKNOWN = 21, /**< a flush failed: close the object and open it again [EIO] */
    EM_LOG_MISSING = 22,        /**< the object's log is missing [ENOENT] */
    EM_LOG_FULL = 23,           /**< readers keep the log from being emptied [ENOBUFS] */
    EM_UNSUPPORTED = 24,        /**< the kernel or the processor lacks a feature [ENOSYS] */
    EM_IO = 25,                 /**< any other error of the kernel [its own errno] */
    EM_OTHER_OBJECT = 26,       /**< a detached Rust value of another object [EXDEV] */
    EM_DESERIALIZE = 27,        /**< the input is not a value of the Rust type [EBADMSG] */
    EM_BAD_BASE = 28,           /**< not a valid address for a store [EADDRNOTAVAIL] */
    EM_NOTHING_KEPT = 29,       /**< no rebase to undo [ENOENT] */
    EM_CHANGED_SINCE = 30,      /**< undoing would lose commits [ESTALE] */
    EM_POINTS_ELSEWHERE = 31,   /**< the object has pointers to other objects [EXDEV] */
    EM_BAD_EXPORT = 32,         /**< not a complete export of an object [EBADMSG] */
    EM_OTHER_KIND = 33,         /**< an object of a sandbox's guest [EMEDIUMTYPE] */
    EM_BAD_GUEST_ROOT = 34,     /**< a guest root outside of its object (sandboxes only) [EFAULT] */
    EM_WOULD_DEADLOCK = 35,     /**< the calling thread already has the lock [EDEADLK] */
    EM_NOT_LOCKED = 36,         /**< the calling thread has not locked the shared object [ENOLCK] */
    EM_FILE_SIZE_LIMIT = 37,    /**< the file would grow past `ulimit -f` [EFBIG] */
    EM_FOREIGN_POINTER = 38,    /**< the commit would store pointers out of the object [EFAULT] */
    EM_OTHER_BUILD = 39,        /**< the object's pointers lead into another build [ENOEXEC] */
    EM_CLOSED = 100,            /**< not an open handle: closed, never opened, or NULL [EBADF] */
    EM_READ_ONLY = 101,         /**< the object is open for reading [EROFS] */
    EM_FORKED = 102,            /**< a forked child of the process that opened it [ECHILD] */
    EM_INVALID_ARGUMENT = 103,  /**< an invalid argument [EINVAL] */
    EM_TOO_MANY_OPEN = 104,     /**< more open handles than the library supports [EMFILE] */
    EM_INTERNAL = 105,          /**< a bug in the library [ENOTRECOVERABLE] */
    EM_UNCOMMITTED = 106,       /**< changes are uncommitted: commit or roll back [EINPROGRESS] */
    EM_SOURCE_CHANGED = 200,    /**< the source changed or ended while it was read [ESTALE] */
    EM_DIFFERS = 201,           /**< the bytes read back differ from the source [EBADMSG] */
    EM_REFUSED = 202,           /**< the requested engine or method cannot do it [EOPNOTSUPP] */
    EM_PEER = 203,              /**< the other end of a connection failed [ECONNABORTED] */
    EM_CANCELLED = 204,         /**< cancelled by the caller [ECANCELED] */
    EM_NOT_A_FILE = 300,        /**< a directory, device or pipe, which cannot be loaded [EINVAL] */
    EM_UNREADABLE = 301,        /**< some bytes cannot be read [EIO] */
    EM_NO_MEMORY = 302,         /**< not enough memory [ENOMEM] */
    EM_THREADS_LOST = 303,      /**< the loading threads were killed [EOWNERDEAD] */
    EM_MALFORMED = 304          /**< invalid rules or an invalid recording [EBADMSG] */
} em_status;

/** Mode in which an object is opened. */
typedef enum em_mode {
    EM_READ = 1, /**< its last commit at the time of opening; a writer elsewhere may run */
    EM_WRITE = 2, /**< one writer at a time; readers in other processes may stay and start */
    EM_SHARE = 3 /**< like EM_WRITE, for threads of this process that lock it; see em_read_lock() */
} em_mode;

/** Time at which a commit is durable. At every level commits are atomic and ordered. */
typedef enum em_durability {
    EM_DURABILITY_COMMIT = 0,   /**< when em_commit() returns */
    EM_DURABILITY_INTERVAL = 1, /**< within interval_ms for a power cut; at once for a kill */
    EM_DURABILITY_CLOSE = 2     /**< at em_object_close() and em_sync() */
} em_durability;

/** Action of a commit when the log is full and readers keep it from being emptied. */
typedef enum em_when_log_full {
    EM_WHEN_LOG_FULL_REPLACE = 0, /**< replace the object's file by a complete copy */
    EM_WHEN_LOG_FULL_REFUSE = 1   /**< fail with EM_LOG_FULL; nothing is lost */
} em_when_log_full;

/** Checks made when an object is opened. */
typedef enum em_verify {
    EM_VERIFY_SUPERBLOCK = 0, /**< the parts needed to open it: some microseconds */
    EM_VERIFY_BACKGROUND = 1, /**< the same, and a thread compares every page afterwards */
    EM_VERIFY_FULL = 2        /**< every page before opening, as fast as it can be read */
} em_verify;

/** Protection of an object's memory against stores outside of em_write_begin() and
 * em_write_end(). */
typedef enum em_protection {
    EM_PROTECTION_OFF = 0,   /**< none */
    EM_PROTECTION_PAGES = 1, /**< by mprotect(); a scope opens the memory for all threads */
    EM_PROTECTION_KEYS = 2   /**< by a memory protection key, per thread; without keys, by pages */
} em_protection;

/** Rights of a child of fork() to the memory of an object that is open for writing. */
typedef enum em_in_children {
    EM_IN_CHILDREN_READ_ONLY = 0, /**< read it; stores fault */
    EM_IN_CHILDREN_PRIVATE = 1    /**< stores stay in the child and are never committed */
} em_in_children;

/** Action of a commit for pointers that lead out of the object into memory that the next process
 * does not have: the C heap, a stack, a library, another store. */
typedef enum em_foreign_pointers {
    EM_FOREIGN_REPORT = 0, /**< commit, and report each place once, see em_on_foreign_pointer(). If
                                it leads into a program or library, its build is recorded: processes
                                that have another one, or have it elsewhere, get EM_OTHER_BUILD when
                                they open the object */
    EM_FOREIGN_REFUSE = 1, /**< fail with EM_FOREIGN_POINTER; nothing is committed or lost */
    EM_FOREIGN_ALLOW = 2   /**< do not check */
} em_foreign_pointers;

/** Action for an object with pointers into a build that this process does not have. */
typedef enum em_other_builds {
    EM_OTHER_BUILDS_REFUSE = 0, /**< fail with EM_OTHER_BUILD */
    EM_OTHER_BUILDS_OPEN = 1    /**< open it: for programs that follow no such pointer */
} em_other_builds;

/** Severity of a finding. */
typedef enum em_severity {
    EM_LEFTOVER = 0, /**< left behind by a dead process; the next one cleans it up */
    EM_SUSPECT = 1,  /**< possibly the trace of a loss, possibly harmless */
    EM_DAMAGE = 2,   /**< data is lost or contradictory */
    EM_UNCHECKED = 3 /**< the file could not be checked; `found` says why */
} em_severity;

/* ---- Stores and objects: types ------------------------------------------------------------- */

/** An open store. */
typedef struct em_store em_store;
/** An open object, for writing or for reading. */
typedef struct em_object em_object;

/** Options for opening and creating stores. Start with EM_STORE_OPTIONS_DEFAULT; a zero or NULL
 * is the default of its field. `size` is sizeof(em_store_options): libraries accept older,
 * shorter structs. */
typedef struct em_store_options {
    size_t size;
    /** Address space of a new store, rounded up to 1 GiB. Default: 64 GiB. Unused addresses cost
     * nothing. */
    uint64_t arena_bytes;
    /** Range of addresses for a new store; multiples of 1 GiB, both or none. */
    uint64_t window_base;
    uint64_t window_end;
    /** Maximum wait for an object that another process has open. Default: no wait. */
    uint32_t busy_timeout_ms;
    /** Maximum wait for another process that changes the list of objects. Default: 10 s. */
    uint32_t catalog_timeout_ms;
    /** An em_verify. */
    uint32_t verify;
    /** An em_other_builds. */
    uint32_t other_builds;
    /** File in which stores record their addresses; "" for none. Default: a file in the user's
     * state directory. */
    const char *arena_registry;
    /** Name of the application whose objects are created and opened. Default: none; then only
     * objects without an application open. */
    const char *application;
    /** EM_TAG_BYTES bytes chosen by the caller, not all zero, instead of `application`. */
    const uint8_t *application_key;
} em_store_options;

#define EM_STORE_OPTIONS_DEFAULT \
    { sizeof(em_store_options), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL }

/** Options of one writer. Start with EM_WRITE_OPTIONS_DEFAULT; a zero is the default of its
 * field. `size` is sizeof(em_write_options). */
typedef struct em_write_options {
    size_t size;
    /** An em_durability. */
    uint32_t durability;
    /** With EM_DURABILITY_INTERVAL: the interval, at least 1. */
    uint32_t interval_ms;
    /** Size of the log after which a commit is followed by a checkpoint. Default: 256 MiB. */
    uint64_t log_bytes_max;
    /** Maximum bytes of changed pages kept in memory after their commit, because storing to them
     * again costs less. Default: 256 MiB. */
    uint64_t hot_bytes_max;
    /** Time after the last checkpoint from which a commit is followed by one. Default: 60 s. */
    uint32_t checkpoint_after_ms;
    /** An em_when_log_full. */
    uint32_t when_log_full;
    /** Not zero: log whole changed pages, for disks whose sectors can become unreadable in a
     * power cut. */
    uint32_t log_full_pages;
    /** An em_protection; not with EM_SHARE. */
    uint32_t protection;
    /** With EM_SHARE, not zero: readers run during the flush of a commit. A state that they read
     * then can be undone: when the commit fails or is rolled back, or the machine stops before
     * the flush is complete. Zero: readers wait for the end of the flush, and no state that they
     * read is undone. */
    uint32_t early_read;
    /** An em_in_children. */
    uint32_t in_children;
    /** An em_foreign_pointers. */
    uint32_t foreign_pointers;
    /** Zero. */
    uint32_t reserved;
} em_write_options;

#define EM_WRITE_OPTIONS_DEFAULT { sizeof(em_write_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** A pointer out of an object that a commit found; it may be a number that looks like an
 * address. Its texts live until the callback returns. */
typedef struct em_foreign_pointer {
    size_t size;         /**< sizeof(em_foreign_pointer) of the library */
    const char *object;  /**< the object's name */
    uint64_t address;    /**< where the pointer lies in the object */
    uint64_t value;      /**< the address that it holds */
    const char *into;    /**< the target: "the C heap", a stack, a file, another store */
    const char *message; /**< a sentence with all details and the remedy */
} em_foreign_pointer;

/** Information about an object. Set `size` to sizeof(em_object_info) before the call; a library
 * with a shorter struct fills only that part. */
typedef struct em_object_info {
    size_t size;
    uint64_t created_ns;      /**< creation time, since 1970-01-01 00:00 UTC */
    uint64_t file_bytes;      /**< bytes of its file */
    uint64_t base_address;    /**< its first address */
    uint64_t sequence;        /**< number of its last commit */
    uint64_t root_bytes;      /**< bytes of the root, 0 for none */
    uint64_t regions;         /**< number of its address ranges */
    uint64_t capacity_bytes;  /**< bytes of addresses for data in the existing regions */
    uint64_t backed_bytes;    /**< bytes of them backed by the file */
    uint64_t blocks;          /**< blocks allocated */
    uint64_t allocated_bytes; /**< bytes of these blocks, rounded up to the occupied size */
    uint64_t large_blocks;    /**< number of blocks larger than a slab block */
    uint64_t large_bytes;     /**< requested bytes of the large blocks */
    uint32_t mode;            /**< the em_mode in which it is open */
    uint32_t protection;      /**< the em_protection in force */
    uint8_t root_tag[EM_TAG_BYTES];
    char uuid[40];            /**< its id, 32 hexadecimal digits; also the name of its file */
    char name[EM_NAME_BUFFER_BYTES];
    char root_description[EM_DESCRIPTION_BUFFER_BYTES + 7];
} em_object_info;

/* ---- Tools: types -------------------------------------------------------------------------- */

/** One finding of em_check(). Its texts live until the callback returns. */
typedef struct em_finding {
    size_t size;          /**< sizeof(em_finding) of the library */
    uint32_t severity;    /**< an em_severity */
    uint32_t repairable;  /**< not zero: `evermap store check --repair` can repair it */
    const char *file;     /**< path of the file, relative to the store's directory */
    const char *object;   /**< the object's name, NULL if unknown */
    const char *what;     /**< the affected part of the file */
    const char *found;    /**< value found */
    const char *expected; /**< value expected */
    const char *remedy;   /**< remedy */
} em_finding;

/** Source of knowledge about an object's contents for em_audit() and em_rebase(). */
typedef enum em_typing {
    EM_TYPED = 0,  /**< the root's type is described: its pointer fields were followed */
    EM_PARTLY = 1, /**< as far as the description goes; the rest word by word */
    EM_UNTYPED = 2 /**< every aligned word that could be an address counts as one */
} em_typing;

/** Kind of a pointer error that em_audit() found. */
typedef enum em_audit_kind {
    EM_AUDIT_FOREIGN = 0,      /**< to a program, its heap or stack, a library */
    EM_AUDIT_OTHER_STORE = 1,  /**< into an arena of another store */
    EM_AUDIT_NO_OBJECT = 2,    /**< into the store's addresses, but into no object */
    EM_AUDIT_OTHER_OBJECT = 3, /**< into another object of the store: works while both are open */
    EM_AUDIT_DANGLING = 4,     /**< into the object, where nothing is allocated */
    EM_AUDIT_METADATA = 5,     /**< into the object's own metadata */
    EM_AUDIT_MISPLACED = 6,    /**< an owning pointer into the middle of a block */
    EM_AUDIT_BROKEN = 7,       /**< a container that claims more than its block holds */
    EM_AUDIT_SHARED = 8,       /**< to a block with another owner: it would be freed twice */
    EM_AUDIT_LEAK = 100        /**< not a pointer: blocks that cannot be reached from the root */
} em_audit_kind;

/** Certainty that a word is a pointer. */
typedef enum em_confidence {
    EM_POSSIBLE = 0, /**< ordinary numbers may look like this */
    EM_LIKELY = 1,   /**< hardly anything but a pointer looks like this */
    EM_CERTAIN = 2   /**< its type says so */
} em_confidence;

/** Reason why unreachable blocks may not be leaks. */
typedef enum em_doubt {
    EM_DOUBT_NONE = 0,
    EM_DOUBT_NO_ROOT = 1,            /**< the object has no root */
    EM_DOUBT_NO_POINTERS = 2,        /**< no word of the root is the address of a block */
    EM_DOUBT_NO_POINTERS_BY_TYPE = 3 /**< by its type, the root has no pointer to a block */
} em_doubt;

/** Reason why em_rebase() treats words as addresses. */
typedef enum em_moved_kind {
    EM_MOVED_TYPED = 0,         /**< their type */
    EM_MOVED_BEGINNING = 1,     /**< their value is the beginning of a block of the object */
    EM_MOVED_INSIDE = 2,        /**< their value is in the middle of a block */
    EM_MOVED_NOT_ALLOCATED = 3, /**< their value is in the object, where nothing is allocated */
    EM_MOVED_BOOKKEEPING = 4,   /**< their value is in the object's own metadata */
    EM_MOVED_OTHER_OBJECT = 5,  /**< their value is in another object of the store */
    EM_MOVED_NOT = 100          /**< look like addresses but stay: not pointers, or unreachable */
} em_moved_kind;

/** A word in an object. Lists of these structs cannot grow: the size is fixed. */
typedef struct em_pointer_sample {
    const char *path; /**< path from the root, such as "root.pages[3]" or "root +16" */
    uint64_t address; /**< address of the word */
    uint64_t value;   /**< address that it leads to; for an EM_AUDIT_LEAK, the block's bytes */
} em_pointer_sample;

/** Options for em_audit(). Start with EM_AUDIT_OPTIONS_DEFAULT; a zero is the default of its
 * field. `size` is sizeof(em_audit_options). */
typedef struct em_audit_options {
    size_t size;
    /** Maximum bytes of the object kept in memory. Default: 1 GiB. */
    uint64_t memory_bytes;
    /** Maximum sample words per finding. Default: 5. */
    uint32_t samples;
    /** Process that uses the object, for naming the targets of foreign pointers. Default: none;
     * then the targets are guessed from the address range. */
    uint32_t process_id;
} em_audit_options;

#define EM_AUDIT_OPTIONS_DEFAULT { sizeof(em_audit_options), 0, 0, 0 }

/** Counts of em_audit(). Set `size` to sizeof(em_audit_report) before the call; a library with a
 * shorter struct fills only that part. */
typedef struct em_audit_report {
    size_t size;
    uint64_t sequence;          /**< number of the commit that was read */
    uint64_t blocks;            /**< allocated blocks */
    uint64_t bytes;             /**< bytes of these blocks */
    uint64_t reached_blocks;    /**< blocks reachable from the root, including its own */
    uint64_t reached_bytes;     /**< bytes of these blocks */
    uint64_t leaked_blocks;     /**< unreachable blocks; see `doubt` */
    uint64_t leaked_bytes;      /**< bytes of these blocks */
    uint64_t leaked_heads;      /**< leaked blocks to which no leaked block points */
    uint64_t looked_at;         /**< words and pointer fields examined */
    uint64_t interior;          /**< pointers into the middle of a block, which is legal */
    uint64_t damage;            /**< pointers that break a program that follows them */
    uint64_t suspect;           /**< pointers that may be stale or harmless */
    uint64_t damaged_chunks;    /**< damaged chunks of the allocator: em_check() says more */
    uint32_t typing;            /**< an em_typing */
    uint32_t has_root;          /**< not zero: there is a root */
    uint32_t doubt;             /**< an em_doubt */
    uint32_t reserved;
} em_audit_report;

/** Pointers of one kind to one target. Its texts and samples live until the callback returns. */
typedef struct em_audit_finding {
    size_t size;         /**< sizeof(em_audit_finding) of the library */
    uint32_t kind;       /**< an em_audit_kind */
    uint32_t severity;   /**< EM_SUSPECT or EM_DAMAGE */
    uint32_t confidence; /**< an em_confidence */
    uint32_t reserved;
    uint64_t count;      /**< number of pointers */
    const char *to;      /**< target; for an EM_AUDIT_LEAK, the reason for doubt, or "" */
    const em_pointer_sample *samples; /**< sample words */
    size_t sample_count; /**< number of samples */
} em_audit_finding;

/** Options for em_backup() and em_restore(). Start with EM_COPY_OPTIONS_DEFAULT. `size` is
 * sizeof(em_copy_options). */
typedef struct em_copy_options {
    size_t size;
    /** em_backup(): not zero: do not verify checksums. */
    uint32_t unverified;
    /** em_restore(): not zero: replace an existing store, but nothing else. */
    uint32_t replace;
} em_copy_options;

#define EM_COPY_OPTIONS_DEFAULT { sizeof(em_copy_options), 0, 0 }

/** Counts of em_backup() or em_restore(). Set `size` to sizeof(em_copy_report) before the call. */
typedef struct em_copy_report {
    size_t size;
    uint64_t objects;  /**< number of objects */
    uint64_t bytes;    /**< bytes of their files */
    uint64_t findings; /**< damage found in the source, which the copy contains too */
} em_copy_report;

/** Options for em_rebase(). Start with EM_REBASE_OPTIONS_DEFAULT. `size` is
 * sizeof(em_rebase_options). */
typedef struct em_rebase_options {
    size_t size;
    /** New first address of the store, a multiple of 1 GiB. Default: a place that no other store
     * of the user has. */
    uint64_t to;
    /** Not zero: only report which words would change; the store may be in use. */
    uint32_t dry_run;
    /** Not zero: use `to` although another store of the user is recorded there; then no process
     * can open both. */
    uint32_t force;
    /** Maximum sample words per call of the callback. Default: 5. */
    uint32_t samples;
    /** Zero. */
    uint32_t reserved;
} em_rebase_options;

#define EM_REBASE_OPTIONS_DEFAULT { sizeof(em_rebase_options), 0, 0, 0, 0, 0 }

/** Result of em_rebase(), also of a dry run. Set `size` to sizeof(em_rebase_report) before the
 * call. */
typedef struct em_rebase_report {
    size_t size;
    uint64_t from;    /**< previous first address of the store */
    uint64_t to;      /**< new first address; 0 for a dry run without an address */
    uint64_t arenas;  /**< number of address ranges of the store */
    uint64_t objects; /**< objects that moved */
    uint64_t moved;   /**< words that changed */
    uint64_t kept;    /**< words that look like addresses but stayed */
    uint64_t met;     /**< ranges of other stores at the new place: no process can open both */
    char kept_in[64]; /**< directory inside the store with the old files; "" for a dry run */
} em_rebase_report;

/** Words of one kind in one object that em_rebase() changes or keeps. Its texts and samples live
 * until the callback returns. */
typedef struct em_moved {
    size_t size;         /**< sizeof(em_moved) of the library */
    const char *object;  /**< the object's name */
    uint32_t typing;     /**< an em_typing */
    uint32_t kind;       /**< an em_moved_kind */
    uint64_t count;      /**< number of words */
    const em_pointer_sample *samples; /**< sample words */
    size_t sample_count; /**< number of samples */
} em_moved;

/** Options for em_export(). Start with EM_EXPORT_OPTIONS_DEFAULT. `size` is
 * sizeof(em_export_options). */
typedef struct em_export_options {
    size_t size;
    /** Not zero: export an object although it has pointers to other objects, which are invalid
     * in another store. */
    uint32_t force;
    /** Zero. */
    uint32_t reserved;
} em_export_options;

#define EM_EXPORT_OPTIONS_DEFAULT { sizeof(em_export_options), 0, 0 }

/** Counts of em_export(). Set `size` to sizeof(em_export_report) before the call. */
typedef struct em_export_report {
    size_t size;
    uint64_t sequence;           /**< number of the exported commit */
    uint64_t pages;              /**< pages written */
    uint64_t bytes;              /**< bytes written */
    uint64_t pointers_elsewhere; /**< pointers to other objects of the store */
} em_export_report;

/** Options for em_import(). Start with EM_IMPORT_OPTIONS_DEFAULT. `size` is
 * sizeof(em_import_options). */
typedef struct em_import_options {
    size_t size;
    /** Name for the object. Default: its original name. */
    const char *name;
    /** Not zero: create a store if there is none. */
    uint32_t create;
    /** Zero. */
    uint32_t reserved;
} em_import_options;

#define EM_IMPORT_OPTIONS_DEFAULT { sizeof(em_import_options), NULL, 0, 0 }

/** Result of em_import(). Set `size` to sizeof(em_import_report) before the call. */
typedef struct em_import_report {
    size_t size;
    uint64_t base_address;     /**< its first address */
    uint64_t old_base_address; /**< its original first address; equal when nothing was rewritten */
    uint64_t file_bytes;       /**< bytes of its file */
    uint64_t moved;            /**< words that were rewritten */
    uint64_t kept;             /**< words that look like old addresses but stayed */
    uint32_t points_elsewhere; /**< not zero: it had pointers to other objects, now invalid */
    uint32_t reserved;
    char name[EM_NAME_BUFFER_BYTES];
    char old_name[EM_NAME_BUFFER_BYTES];
} em_import_report;

/* ---- Callbacks ----------------------------------------------------------------------------- */

/** Gets one pointer that leads out of an object. */
typedef void (*em_foreign_callback)(const em_foreign_pointer *pointer, void *context);
/** Gets one name of a list; false ends the list. */
typedef bool (*em_name_callback)(const char *name, void *context);
/** Gets one finding of a check; false ends the reports. */
typedef bool (*em_finding_callback)(const em_finding *finding, void *context);
/** Gets one finding of an audit; false ends the reports. */
typedef bool (*em_audit_callback)(const em_audit_finding *finding, void *context);
/** Gets words of one kind in one object of a rebase; false ends the reports. */
typedef bool (*em_moved_callback)(const em_moved *moved, void *context);

/* ---- Errors -------------------------------------------------------------------------------- */

/** Returns the status of the thread's last failed call; EM_OK before the first. */
em_status em_last_error(void);

/** Returns the message of the thread's last failed call, with cause and remedy; "" before the
 * first. Owned by the library and valid until the thread's next failing call, em_clear_error() or
 * the thread's end. */
const char *em_last_error_message(void);

/** Clears the thread's last error. */
void em_clear_error(void);

/** Returns the name of a status as in this header ("EM_BUSY"), or "unknown status". Never NULL. */
const char *em_status_name(em_status status);

/** Returns the library's version, "major.minor.patch". */
const char *em_version(void);

/* ---- Stores -------------------------------------------------------------------------------- */

/** Opens the store in a directory; `options` may be NULL. Reserves the store's addresses and
 * maps nothing: some 20 us. Opening one store many times is cheap; close each handle once. While
 * this process has the store open, by another handle or by EVERMAP_RESERVE, the options of the
 * first open apply, except the application.
 * Errors: EM_NO_STORE; EM_ADDRESS_TAKEN when other memory is at the store's addresses;
 * EM_FOREIGN, EM_DAMAGED, EM_NEWER_FORMAT, EM_NOT_PERMITTED, EM_TOO_MANY_OPEN. */
em_status em_store_open(const char *path, const em_store_options *options, em_store **store);

/** Creates a store in a directory, which must be empty or not exist, and opens it.
 * Errors: EM_STORE_EXISTS, EM_NOT_PERMITTED, EM_DISK_FULL, and the errors of em_store_open(). */
em_status em_store_create(const char *path, const em_store_options *options, em_store **store);

/** Opens the store in a directory, or creates one.
 * Same errors as em_store_create(). */
em_status em_store_open_or_create(const char *path, const em_store_options *options,
                                  em_store **store);

/** Closes a handle. Objects opened through it stay open. */
em_status em_store_close(em_store *store);

/** Opens the store in a directory for the life of the process, so that no other memory is mapped
 * at its addresses. EVERMAP_RESERVE, a list of paths separated by ':', does the same before
 * main() runs; a failure is then a line on stderr.
 * Same errors as em_store_open(). */
em_status em_store_reserve(const char *path);

/** Calls `callback` with each object's name, in order of creation. The names are collected
 * before the first call. Each name is valid during its call. */
em_status em_store_list(em_store *store, em_name_callback callback, void *context);

/** Tells if there is an object of this name.
 * Errors: EM_INVALID_NAME. */
em_status em_store_contains(em_store *store, const char *name, bool *contains);

/** Removes an object, durably. Open readers of it stay valid.
 * Errors: EM_NOT_FOUND; EM_BUSY when it is being written. */
em_status em_store_remove(em_store *store, const char *name);

/** Renames an object, durably. Programs that have it open continue to work.
 * Errors: EM_NOT_FOUND, EM_ALREADY_EXISTS, EM_INVALID_NAME. */
em_status em_store_rename(em_store *store, const char *from, const char *to);

/** Writes the name of the store's object that owns `address`, open or not, into `buffer` of
 * `size` bytes (EM_NAME_BUFFER_BYTES hold every name). Reads every object's entry; for objects
 * that are open here em_object_of() is faster.
 * Errors: EM_NOT_FOUND when no object owns it; EM_INVALID_ARGUMENT when the buffer is too small. */
em_status em_store_object_at(em_store *store, const void *address, char *buffer, size_t size);

/** Computes the key of an application's name, as em_store_options.application does. */
em_status em_application_key(const char *name, uint8_t key[EM_TAG_BYTES]);

/* ---- Objects ------------------------------------------------------------------------------- */

/** Creates an object with an empty heap and no root, durably. It belongs to the store handle's
 * application, if there is one. It is not opened.
 * Errors: EM_ALREADY_EXISTS, EM_INVALID_NAME (a name is 1 to 255 bytes of UTF-8 without control
 * characters, and not "." or ".."; '/' is an ordinary character), EM_DISK_FULL. */
em_status em_object_create(em_store *store, const char *name);

/** Like em_object_create(), with disk space reserved for a block of `bytes` bytes, or for many
 * smaller ones. Needs no additional flushes; em_reserve() afterwards would need up to five. The
 * object's first session keeps the space at its end, used or not; later sessions release free
 * space, unless they reserve it themselves.
 * Errors: as em_object_create(), and EM_OUT_OF_ADDRESSES. */
em_status em_object_create_sized(em_store *store, const char *name, uint64_t bytes);

/** Opens an object. `options` is for EM_WRITE and EM_SHARE and may be NULL. Takes about ten
 * system calls, independent of the object's size; pages are read when they are touched. EM_READ
 * maps the last commit read-only (a store to it is SIGSEGV) until em_refresh() or
 * em_object_close(). EM_WRITE maps it writable; an object whose last writer was killed is
 * recovered first. In one process a writer and readers of one object exclude each other.
 * EM_SHARE maps it like EM_WRITE, for threads that read and write it under locks; opening it
 * again with the same options returns the same mapping.
 * Errors: EM_NOT_FOUND, EM_BUSY, EM_OTHER_APPLICATION, EM_DAMAGED, EM_LOG_MISSING,
 * EM_ADDRESS_TAKEN, EM_NOT_PERMITTED, EM_TOO_MANY_OPEN. */
em_status em_object_open(em_store *store, const char *name, em_mode mode,
                         const em_write_options *options, em_object **object);

/** Closes a handle. The object's memory is unmapped (unless other handles of this process have
 * it open), so every pointer into it dangles.
 * Errors: EM_UNCOMMITTED when there are uncommitted changes: call em_commit(), or em_rollback()
 * to drop them, and close again; EM_BUSY, also while a thread has a shared object locked. The
 * object stays open after these errors. After a failed flush: the error of the flush; the object
 * is closed then. */
em_status em_object_close(em_object *object);

/** Writes the name that the object had when it was opened into `buffer` of `size` bytes.
 * Errors: EM_INVALID_ARGUMENT when the buffer is too small. */
em_status em_object_name(em_object *object, char *buffer, size_t size);

/** Returns the open object of this process that owns `address`, or NULL if there is none. If
 * several handles read the object, returns one of them. Takes some nanoseconds; sets no error. */
em_object *em_object_of(const void *address);

/** Returns the object's first address, the same in every process; NULL on failure. No block
 * begins there. */
void *em_object_base(em_object *object);

/** Returns true if `size` bytes from `address` lie in the object. False for an invalid handle. */
bool em_contains(em_object *object, const void *address, size_t size);

/* ---- Shared objects ------------------------------------------------------------------------ */

/* An object that is open with EM_SHARE is read and written under locks. Each lock is released
 * once, by the thread that took it, before the thread ends. Reading means following em_root().
 * Writing means storing to the object's memory, allocating and freeing in it, and em_set_root(),
 * em_commit(), em_rollback(), em_reserve(), em_release(), em_shrink(), em_info() and
 * em_verified(). These functions return EM_NOT_LOCKED without the lock, and only the locking
 * thread may call them. em_checkpoint() and em_sync() are called without a lock, and readers
 * continue during them. */

/** Locks a shared object for reading: waits while a thread writes it. A thread that already
 * reads it does not wait, even if a writer does. Without a writer the call never waits: it takes
 * some atomic additions, none of them on a cache line that another processor changes.
 * Errors: EM_WOULD_DEADLOCK when the thread writes it; EM_DURABILITY_UNKNOWN after a failed
 * flush: close the object in this process and open it again; EM_FORKED in a child of a process
 * that was writing it; EM_INVALID_ARGUMENT when it is not shared. */
em_status em_read_lock(em_object *object);

/** Ends a read of the calling thread.
 * Errors: EM_NOT_LOCKED; EM_INVALID_ARGUMENT when the object is not shared. */
em_status em_read_unlock(em_object *object);

/** Locks a shared object for writing: waits for earlier writers, then for the current readers.
 * New readers wait. After em_commit() with `early_read`, readers may run again: call
 * em_write_begin() before the next store, which waits for them.
 * Errors: as em_read_lock(), and EM_WOULD_DEADLOCK also when the thread reads it. */
em_status em_write_lock(em_object *object);

/** Ends the write section of the calling thread.
 * Errors: EM_NOT_LOCKED; EM_UNCOMMITTED when there are uncommitted changes: the thread keeps the
 * lock then; EM_INVALID_ARGUMENT when the object is not shared. */
em_status em_write_unlock(em_object *object);

/* ---- The root ------------------------------------------------------------------------------ */

/** Returns the object's root, including uncommitted changes; NULL if there is none and on
 * failure (which sets errno). */
void *em_root(em_object *object);

/** Returns the size given for the root; 0 if there is none and on failure. */
size_t em_root_size(em_object *object);

/** Reads the tag of the root: zeros, the tag given to em_set_root(), or the id of a Rust type. */
em_status em_root_tag(em_object *object, uint8_t tag[EM_TAG_BYTES]);

/** Writes the description of the root into `buffer`, truncated to `size` bytes
 * (EM_DESCRIPTION_BUFFER_BYTES hold every one). */
em_status em_root_description(em_object *object, char *buffer, size_t size);

/** Makes `root` the object's root with the next commit: an allocated block of the object with at
 * least `size` bytes, or NULL for none. `tag` may be NULL (zeros), `description` too (""). The
 * old root's memory is not freed. A caller that gives the id of a Rust type as the tag must have
 * a valid value of that type there, in blocks of this object: Rust programs trust it.
 * Errors: EM_BAD_ROOT when it is not such a block (em_commit() checks again: it may have been
 * freed), EM_READ_ONLY. */
em_status em_set_root(em_object *object, void *root, size_t size,
                      const uint8_t tag[EM_TAG_BYTES], const char *description);

/* ---- Pointers out of objects --------------------------------------------------------------- */

/** Sets the callback for the pointers that commits report, for all objects of the process. It
 * runs in the committing thread and must not use the committed object. With NULL, the initial
 * value, the first eight of each object are printed on standard error. */
void em_on_foreign_pointer(em_foreign_callback callback, void *context);

/** Declares that these bytes of the object hold addresses of the process by design, such as a
 * table of functions that each process writes again: this session's commits ignore them. With
 * EM_SHARE, the calling thread must hold the write lock; this also applies to the next two
 * functions.
 * Errors: EM_INVALID_ARGUMENT when the bytes do not lie in the object, EM_READ_ONLY,
 * EM_NOT_LOCKED. */
em_status em_expect_foreign(em_object *object, const void *address, size_t size);

/** Allows pointers into this program's functions and static data in the object, and records the
 * program's build with the next commit: processes with another build get EM_OTHER_BUILD when
 * they open the object. For programs with a fixed address, linked with -no-pie. Needs exclusive
 * use without EM_SHARE, see THREADS.
 * Errors: EM_UNSUPPORTED for a program whose address differs in each process, EM_READ_ONLY. */
em_status em_register_code(em_object *object);

/** Removes, with the next commit, the record of builds that the object's pointers lead into: for
 * a program that has removed or replaced these pointers. Needs exclusive use without EM_SHARE,
 * see THREADS.
 * Errors: EM_READ_ONLY, EM_NOT_LOCKED. */
em_status em_forget_code(em_object *object);

/* ---- Commits ------------------------------------------------------------------------------- */

/** Makes all changes since the last commit durable, atomically. `changed`, which may be NULL,
 * tells if there were any. Needs exclusive use, see THREADS.
 * Errors: EM_BUSY, EM_READ_ONLY, EM_DISK_FULL, EM_LOG_FULL, EM_BAD_ROOT: nothing was lost,
 * commit again when the cause is removed. EM_DURABILITY_UNKNOWN: close and open again.
 * EM_DAMAGED, from a background verification. EM_IO or EM_ADDRESS_TAKEN when the object has new
 * addresses to record in the store's list and the store is no longer at its path: every commit
 * fails until the directory has its name back or em_rollback() drops the new addresses. */
em_status em_commit(em_object *object, bool *changed);

/** Drops all changes since the last commit; pointers to blocks allocated since then dangle.
 * Needs exclusive use, see THREADS.
 * Errors: EM_BUSY, EM_READ_ONLY. */
em_status em_rollback(em_object *object);

/** Writes all commits to the object's file and empties its log; `done`, which may be NULL, is
 * false while readers of older commits prevent that. Never required; costs a flush.
 * Errors: EM_BUSY, EM_READ_ONLY, EM_DISK_FULL. */
em_status em_checkpoint(em_object *object, bool *done);

/** Makes all commits so far durable, at any em_durability.
 * Errors: EM_BUSY, EM_READ_ONLY, EM_DURABILITY_UNKNOWN. */
em_status em_sync(em_object *object);

/** For an object open for reading: moves to its newest commit; `changed`, which may be NULL,
 * tells if there was a newer one. Pointers into the older commit then dangle, unless they point
 * to data that both have at the same place. For an object open for writing: changes nothing.
 * Errors: EM_BUSY when other handles of this process read the older commit, or see THREADS, and
 * EM_DAMAGED for a bad page that em_store_options.verify found: the object is unchanged then. If
 * the newer commit cannot be opened, the object is closed; EM_CLOSED when this process writes an
 * object that has its name now. */
em_status em_refresh(em_object *object, bool *changed);

/** For an object open for reading: overlays `size` bytes at `address`, in this process only and
 * until em_refresh() or em_object_close(). Their pages become private to the process. For data
 * in an object that must differ per process, such as addresses of its code. Every handle of this
 * process that reads the object sees the bytes, and no thread may read them during the call.
 * Errors: EM_INVALID_ARGUMENT when the bytes do not lie in the object's data, or it is open for
 * writing. */
em_status em_patch(em_object *object, const void *address, const void *bytes, size_t size);

/** Returns the number of the last commit, or of the commit that is read; 0 on failure. */
uint64_t em_sequence(em_object *object);

/** Tells if every page was compared with its checksum, as em_store_options.verify requested.
 * `done` is false while this is in progress.
 * Errors: EM_DAMAGED, with the first bad page. */
em_status em_verified(em_object *object, bool *done);

/** Fills `info`, whose `size` must be set; for a writer, including uncommitted allocations.
 * Counts blocks: some microseconds per GiB.
 * Errors: EM_INVALID_ARGUMENT, EM_IO. */
em_status em_info(em_object *object, em_object_info *info);

/* ---- Write protection -----------------------------------------------------------------------
 * An object that was opened with em_write_options.protection is closed to stores. A stray store is
 * SIGSEGV at the place where it happens, and the last commit is not affected. The program opens the
 * object while it stores. The library's own functions (the heap's, em_set_root(), commits) open it
 * during the call; the block that em_malloc() returns is closed. */

/** Opens a protected object to stores, until em_write_end() was called as often. Does nothing
 * for an object that is neither protected nor shared (see EM_SHARE). With keys, it applies to
 * the calling thread, and to threads that it starts in the scope, and takes some 20 ns; with
 * pages, it applies to all threads and takes two system calls for the first and the last scope.
 * Put many stores between the two calls. Scopes nest.
 * Errors: EM_READ_ONLY, EM_BUSY, and EM_IO when the kernel refuses. */
em_status em_write_begin(em_object *object);

/** Ends the scope that em_write_begin() began: with keys in the same thread.
 * Errors: EM_INVALID_ARGUMENT for a protected object without a scope; EM_READ_ONLY, EM_BUSY. */
em_status em_write_end(em_object *object);

/** Takes memory protection keys from the kernel, for objects that are protected later. Returns
 * false if there are none. Keys are available only while the process has one thread, so a
 * program that starts threads early calls this at the beginning of main(). Sets no error. */
bool em_prepare_keys(void);

/* ---- The heap ------------------------------------------------------------------------------
 * All functions need an object open for writing: else they return NULL (or the status) with
 * EM_READ_ONLY. Blocks are aligned to at least 16 bytes. An allocation touches the disk only when
 * the object has to grow, by reserving blocks of its file. Failures: EM_BAD_ALLOCATION (more than
 * EM_ALLOCATION_BYTES_MAX, or an alignment that is not a power of two), EM_DISK_FULL,
 * EM_OUT_OF_ADDRESSES; the heap is unchanged then. */

/** Returns a block of `size` bytes with unspecified contents, or NULL. For 0 bytes, returns a
 * distinct block. */
void *em_malloc(em_object *object, size_t size);

/** Returns a block of `count` times `size` zero bytes, or NULL; a product that overflows is
 * EM_BAD_ALLOCATION. */
void *em_calloc(em_object *object, size_t count, size_t size);

/** Changes a block's size, moves it if needed, and returns its address, or NULL, with the old
 * block unchanged. A NULL `pointer` is em_malloc(); a `size` of 0 leaves a distinct block. A
 * pointer that is not an allocated block of the object aborts as in em_free(). An alignment of
 * more than 16 is lost when the block moves. */
void *em_realloc(em_object *object, void *pointer, size_t size);

/** Returns a block of `size` bytes at a multiple of `alignment`, any power of two; or NULL. Free
 * it with em_free(). */
void *em_aligned_alloc(em_object *object, size_t alignment, size_t size);

/** Frees a block; NULL is ignored. A pointer that is not an allocated block of the object
 * (already freed, foreign, or inside of a block), and an object that cannot be used (closed,
 * open for reading, forked, being committed by another thread), prints the cause on stderr and
 * aborts: continuing would hand out the same memory twice. */
void em_free(em_object *object, void *pointer);

/** Like em_free(), but returns a status instead of aborting; nothing was freed then.
 * Errors: EM_INVALID_FREE, EM_CLOSED, EM_READ_ONLY, EM_FORKED, EM_BUSY. */
em_status em_try_free(em_object *object, void *pointer);

/** Returns the usable bytes of an allocated block, at least the requested size; 0 when `pointer`
 * is not an allocated block of the object, and on failure. */
size_t em_usable_size(em_object *object, const void *pointer);

/** Reserves addresses and disk space for a block of `bytes` bytes, or many smaller ones, so that
 * allocating them cannot fail on a full disk. Durable on return, and kept when the object is
 * closed. Commits the changes so far. Needs exclusive use, see THREADS.
 * Errors: EM_DISK_FULL, EM_OUT_OF_ADDRESSES, EM_READ_ONLY, and the errors of em_commit(): the
 * session keeps the new addresses then, until it commits or rolls back. */
em_status em_reserve(em_object *object, uint64_t bytes);

/** Releases up to `bytes_max` bytes of the object's unused end to the file system, as whole
 * pages; `bytes`, which may be NULL, returns the number, which is smaller when less is unused,
 * or readers of older commits use it. Commits the changes so far. Needs exclusive use, see
 * THREADS.
 * Errors: EM_READ_ONLY, and the errors of em_commit(). */
em_status em_release(em_object *object, uint64_t bytes_max, uint64_t *bytes);

/** Releases all disk space that the object does not need to the file system: its unused end and
 * free chunks in the middle; `bytes`, which may be NULL, returns the number. Nothing moves.
 * Commits the changes so far. Needs exclusive use, see THREADS.
 * Same errors as em_release(). */
em_status em_shrink(em_object *object, uint64_t *bytes);

/* ---- Tools --------------------------------------------------------------------------------- */

/** Checks the store in a directory, open or not, and calls `callback` (NULL for none) with each
 * finding. Changes nothing; reads all of every object.
 * Errors: EM_DAMAGED when a finding is worse than EM_LEFTOVER; the error of the first file that
 * could not be read; EM_NO_STORE. */
em_status em_check(const char *path, em_finding_callback callback, void *context);

/** Checks the raw pointers of one object of the store in a directory, as of its last commit, and
 * finds unreachable blocks; calls `callback` (NULL for none) with each finding, the worst first,
 * leaks last. `options` may be NULL. Maps nothing and changes nothing; the object may be in use.
 * Takes some seconds for five million blocks, and 10 bytes of memory per block. Findings are not
 * a failure: see `report->damage`.
 * Errors: EM_NO_STORE, EM_NOT_FOUND; EM_DAMAGED when the catalog or the object cannot be read. */
em_status em_audit(const char *path, const char *name, const em_audit_options *options,
                   em_audit_report *report, em_audit_callback callback, void *context);

/** Copies the store in a directory, which may be in use, to the directory `to`, which must be
 * empty or not exist: every object as of one commit. The copy is a complete store, or does not
 * exist. It has the same addresses, so a process can open only one of the two. Calls `callback`
 * (NULL for none) with each damage that was copied. `options` may be NULL. Damage that could be
 * copied is not a failure: see `report->findings`.
 * Errors: EM_NO_STORE, EM_STORE_EXISTS, EM_DISK_FULL, EM_NOT_PERMITTED; EM_DAMAGED when data
 * cannot be read at all. There is no copy after an error. */
em_status em_backup(const char *path, const char *to, const em_copy_options *options,
                    em_copy_report *report, em_finding_callback callback, void *context);

/** Creates the store in the directory `path` from a backup, which is checked first and stays
 * unchanged. With `options->replace`, an existing store is replaced in one step; it must not be
 * in use. `options` may be NULL.
 * Errors: EM_NO_STORE when the backup is not a store; EM_DAMAGED when it is damaged;
 * EM_STORE_EXISTS, EM_BUSY, EM_DISK_FULL, EM_NOT_PERMITTED. The content of `path` is unchanged
 * after an error. */
em_status em_restore(const char *backup, const char *path, const em_copy_options *options,
                     em_copy_report *report);

/** Moves the store in a directory to other addresses, by rewriting the pointers in it: by type
 * if the type of an object's root is known, else every word that looks like an address of the
 * store. Do a dry run first. Calls `callback` (NULL for none) with each kind of word in each
 * object, at the end. `options` may be NULL. The store must not be open; it needs twice the disk
 * space, until `kept_in` is removed.
 * Errors: EM_BUSY, EM_NO_STORE, EM_DAMAGED, EM_DISK_FULL, EM_NOT_PERMITTED, EM_UNSUPPORTED;
 * EM_BAD_BASE for an address where no store can be, or where this one is; EM_ADDRESS_TAKEN where
 * other memory or another store is (see `force`). The store is unchanged after an error. */
em_status em_rebase(const char *path, const em_rebase_options *options, em_rebase_report *report,
                    em_moved_callback callback, void *context);

/** Undoes the last rebase of the store in a directory: the old files are put back. With `force`
 * also when there were commits since, which are lost.
 * Errors: EM_NOTHING_KEPT, EM_CHANGED_SINCE, EM_BUSY, EM_NO_STORE. The store is unchanged after
 * an error. */
em_status em_rebase_undo(const char *path, bool force);

/** Writes one object's last commit to a file descriptor, sequentially, for em_import() in
 * another store or on another machine: to a file or a pipe. The descriptor stays open and is not
 * flushed; output that ends with a failure is not a valid export. `options` may be NULL. Every
 * page is compared with its checksum first; the object may be in use.
 * Errors: EM_POINTS_ELSEWHERE (see `force`), EM_DAMAGED, EM_NO_STORE, EM_NOT_FOUND,
 * EM_DISK_FULL, EM_IO. */
em_status em_export(const char *path, const char *name, int descriptor,
                    const em_export_options *options, em_export_report *report);

/** Creates an object from the output of em_export(), read from a file descriptor to its end; the
 * descriptor stays open. It gets its old addresses if they are this store's and free, else other
 * addresses, with pointers rewritten as in em_rebase(). Appears durably or not at all. `options`
 * may be NULL.
 * Errors: EM_FOREIGN, EM_NEWER_FORMAT, EM_BAD_EXPORT for an incomplete export;
 * EM_ALREADY_EXISTS, EM_INVALID_NAME, EM_NO_STORE, EM_DISK_FULL, EM_OUT_OF_ADDRESSES. */
em_status em_import(const char *path, int descriptor, const em_import_options *options,
                    em_import_report *report);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_H */
