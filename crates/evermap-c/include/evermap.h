/*
 * evermap.h - persistent heaps in files, mapped at fixed addresses, committed atomically.
 *
 * A store is a directory of named objects. An object is a heap in a file, mapped at the same
 * addresses in every process: what a program builds there is there in the next run, with its
 * pointers, at once. Between commits the program works at raw memory speed; em_commit() makes
 * everything it did durable, all of it or nothing.
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
 * RESULTS. A function that can fail returns an em_status (EM_OK is 0), or a pointer that is NULL
 * on failure. On failure the calling thread's error detail is set: em_last_error() is the status,
 * em_last_error_message() a sentence that names what was found, where, and the remedy; errno is
 * set too. Success leaves all three as they are. What is returned through a pointer is written on
 * success only, unless the function says otherwise. A NULL where a pointer is needed is
 * EM_INVALID_ARGUMENT; so is a text that is not UTF-8 (a path may be any bytes). No Rust panic
 * leaves the library: it becomes EM_INTERNAL, which is a bug worth reporting.
 *
 * HANDLES. em_store and em_object are numbers in disguise: never looked into, never given twice.
 * What was opened is closed once. A handle that was closed, that never was one, or NULL gives
 * EM_CLOSED, from every function. An object outlives the handle of its store: closing a store
 * leaves its objects open.
 *
 * UNITS. Sizes are in bytes, times in what the name ends with (_ms, _ns). Texts that come in are
 * read during the call and not kept; texts that go out through a buffer end with a zero byte.
 *
 * THREADS. Every function may be called from any thread. Allocating and freeing in one object by
 * many threads at once is what the heap is made for. em_commit, em_rollback, em_checkpoint,
 * em_sync, em_reserve, em_release, em_shrink, em_refresh and em_object_close must be alone with the
 * object: when two threads call them at once, one gets EM_BUSY and nothing has happened; they get
 * EM_BUSY as well while another thread is inside of any other function with the same object, and
 * every other function called meanwhile gets it (em_free aborts). No thread may store to the
 * object's memory during em_commit and em_rollback: that cannot be noticed, and what such a store
 * does to the commit is unspecified. No function may be called from a signal handler.
 *
 * FORK. A child of fork() reads the objects that its parent had open, as they were at the fork: an
 * object open for reading keeps its commit, an object open for writing keeps its memory, whatever the
 * parent does. Storing to the latter faults, or stays in the child (em_write_options.in_children). The
 * child may call em_root(), em_root_size(), em_root_tag(), em_root_description(), em_object_base(),
 * em_object_name(), em_contains(), em_sequence(), em_read_lock(), em_read_unlock() and
 * em_object_close(), and em_info() of an object that is open for reading. Every other function that can
 * fail gives EM_FORKED, or EM_READ_ONLY where it would in the parent; so does em_read_lock() if another
 * thread was storing to the object at the fork. A child waits for no thread of its parent's. It counts
 * as a reader until it closes the object, execs or ends, and holds no lock of its parent's. Programs
 * that are started (posix_spawn(), popen(), vfork() and exec) may get arguments that lie in an object.
 * A child of a bare clone(), which runs no handlers, keeps the memory of objects open for reading. It
 * has none of the others (a fault; in system calls, EFAULT), and every function gives EM_FORKED but
 * those of the heap, which fault.
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

/* Version of this header; em_version() is the library's. */
#define EM_VERSION_MAJOR 0
#define EM_VERSION_MINOR 1
#define EM_VERSION_PATCH 0

/* Bytes of the longest object name, and of a buffer that holds every one with its zero byte. */
#define EM_NAME_BYTES_MAX 255
#define EM_NAME_BUFFER_BYTES 256
/* Bytes of a root's tag and of an application key. */
#define EM_TAG_BYTES 16
/* Bytes of a buffer for every description of a root; longer ones are cut to fit. */
#define EM_DESCRIPTION_BUFFER_BYTES 1025
/* The largest single allocation; more is EM_BAD_ALLOCATION. */
#define EM_ALLOCATION_BYTES_MAX ((uint64_t)1 << 46)

/** Why a function failed. Numbers never change their meaning; later versions may add some. The
 * errno that goes with each stands in brackets. */
typedef enum em_status {
    EM_OK = 0,
    EM_NO_STORE = 1,            /**< no store at this path [ENOENT] */
    EM_STORE_EXISTS = 2,        /**< something is at the path already [EEXIST] */
    EM_NOT_FOUND = 3,           /**< the store has no object of this name [ENOENT] */
    EM_ALREADY_EXISTS = 4,      /**< the store has an object of this name [EEXIST] */
    EM_INVALID_NAME = 5,        /**< the text cannot name an object [EINVAL] */
    EM_BUSY = 6,                /**< somebody else uses it: see THREADS for threads [EBUSY] */
    EM_ADDRESS_TAKEN = 7,       /**< the store's addresses are in use here [EADDRINUSE] */
    EM_FOREIGN = 8,             /**< not a file of Evermap's [EILSEQ] */
    EM_NEWER_FORMAT = 9,        /**< written by a newer Evermap [EPROTONOSUPPORT] */
    EM_DAMAGED = 10,            /**< the file contradicts itself [EUCLEAN] */
    EM_SCHEMA_MISMATCH = 11,    /**< the root is of another type [EPROTOTYPE] */
    EM_OTHER_APPLICATION = 12,  /**< the object belongs to another application [EPERM] */
    EM_DISK_FULL = 13,          /**< no space left; nothing was lost [ENOSPC] */
    EM_NOT_PERMITTED = 14,      /**< permissions, or a read-only file system [EACCES] */
    EM_OUT_OF_ADDRESSES = 15,   /**< no free addresses of this size [ENOMEM] */
    EM_BAD_ALLOCATION = 16,     /**< a size or an alignment that no object can meet [ENOMEM] */
    EM_INVALID_FREE = 17,       /**< not an allocated block of the object [EFAULT] */
    EM_BAD_ROOT = 18,           /**< the root is no block of the object, or too small [EFAULT] */
    EM_CAPACITY_OVERFLOW = 19,  /**< a collection cannot grow further [EOVERFLOW] */
    EM_OUT_OF_BOUNDS = 20,      /**< an index or a range that is not there [ERANGE] */
    EM_DURABILITY_UNKNOWN = 21, /**< a flush failed: close the object and open it again [EIO] */
    EM_LOG_MISSING = 22,        /**< the object's log is not there [ENOENT] */
    EM_LOG_FULL = 23,           /**< readers keep the log from being emptied [ENOBUFS] */
    EM_UNSUPPORTED = 24,        /**< the kernel or the processor lacks something [ENOSYS] */
    EM_IO = 25,                 /**< anything else the kernel refused [its own errno] */
    EM_OTHER_OBJECT = 26,       /**< a detached Rust value of another object [EXDEV] */
    EM_DESERIALIZE = 27,        /**< what was read is no value of the Rust type [EBADMSG] */
    EM_BAD_BASE = 28,           /**< no store can be at this address [EADDRNOTAVAIL] */
    EM_NOTHING_KEPT = 29,       /**< no rebase that could be taken back [ENOENT] */
    EM_CHANGED_SINCE = 30,      /**< going back would lose commits [ESTALE] */
    EM_POINTS_ELSEWHERE = 31,   /**< the object has pointers to what stays [EXDEV] */
    EM_BAD_EXPORT = 32,         /**< not a whole export of an object [EBADMSG] */
    EM_OTHER_KIND = 33,         /**< an object of a sandbox's guest [EMEDIUMTYPE] */
    EM_BAD_GUEST_ROOT = 34,     /**< a guest's root outside of its object; in sandboxes only [EFAULT] */
    EM_WOULD_DEADLOCK = 35,     /**< the calling thread has it locked and would wait for itself [EDEADLK] */
    EM_NOT_LOCKED = 36,         /**< the calling thread has not locked the shared object [ENOLCK] */
    EM_FILE_SIZE_LIMIT = 37,    /**< the file would grow past `ulimit -f` [EFBIG] */
    EM_FOREIGN_POINTER = 38,    /**< the commit would store pointers out of the object [EFAULT] */
    EM_OTHER_BUILD = 39,        /**< the object has pointers into another build of a program [ENOEXEC] */
    EM_CLOSED = 100,            /**< no open handle: closed, never opened, or NULL [EBADF] */
    EM_READ_ONLY = 101,         /**< the object is open for reading [EROFS] */
    EM_FORKED = 102,            /**< a forked child of the process that opened it [ECHILD] */
    EM_INVALID_ARGUMENT = 103,  /**< an argument that the function cannot take [EINVAL] */
    EM_TOO_MANY_OPEN = 104,     /**< more open handles than the library has room for [EMFILE] */
    EM_INTERNAL = 105,          /**< a bug in the library [ENOTRECOVERABLE] */
    EM_UNCOMMITTED = 106,       /**< ending it would forget changes: commit or roll back [EINPROGRESS] */
    EM_SOURCE_CHANGED = 200,    /**< what is copied or loaded changed meanwhile, or ended too early [ESTALE] */
    EM_DIFFERS = 201,           /**< what was read back is not what was copied [EBADMSG] */
    EM_REFUSED = 202,           /**< the engine or method that was asked for cannot do it [EOPNOTSUPP] */
    EM_PEER = 203,              /**< the other end of a connection [ECONNABORTED] */
    EM_CANCELLED = 204,         /**< somebody wanted it to stop [ECANCELED] */
    EM_NOT_A_FILE = 300,        /**< a directory, a device, a pipe: nothing that could be loaded [EINVAL] */
    EM_UNREADABLE = 301,        /**< some bytes cannot be read; all others can be used [EIO] */
    EM_NO_MEMORY = 302,         /**< it takes more memory than there is [ENOMEM] */
    EM_THREADS_LOST = 303,      /**< something killed the threads that load [EOWNERDEAD] */
    EM_MALFORMED = 304          /**< rules or a recording that say what cannot be [EBADMSG] */
} em_status;

/** How an object is opened. */
typedef enum em_mode {
    EM_READ = 1, /**< its last commit, as it was at opening; beside a writer elsewhere */
    EM_WRITE = 2, /**< one writer at a time; readers in other processes may stay and come */
    EM_SHARE = 3 /**< as EM_WRITE, for threads of this process that lock it; see em_read_lock() */
} em_mode;

/** When a commit is durable. At every level commits are atomic and ordered. */
typedef enum em_durability {
    EM_DURABILITY_COMMIT = 0,   /**< when em_commit() returns */
    EM_DURABILITY_INTERVAL = 1, /**< within interval_ms of a power cut; at once for a kill */
    EM_DURABILITY_CLOSE = 2     /**< at em_object_close() and em_sync() */
} em_durability;

/** What a commit does when the log is full and readers keep it from being emptied. */
typedef enum em_when_log_full {
    EM_WHEN_LOG_FULL_REPLACE = 0, /**< replace the object's file by a copy that has everything */
    EM_WHEN_LOG_FULL_REFUSE = 1   /**< fail with EM_LOG_FULL; nothing is lost */
} em_when_log_full;

/** How much of an object is checked when it is opened. */
typedef enum em_verify {
    EM_VERIFY_SUPERBLOCK = 0, /**< what is needed to open it: some microseconds */
    EM_VERIFY_BACKGROUND = 1, /**< the same; a thread compares every page meanwhile */
    EM_VERIFY_FULL = 2        /**< every page first, as fast as it can be read */
} em_verify;

/** How an object's memory is kept closed to stores between em_write_begin() and em_write_end(). */
typedef enum em_protection {
    EM_PROTECTION_OFF = 0,   /**< not at all */
    EM_PROTECTION_PAGES = 1, /**< by mprotect(); open is open for all threads */
    EM_PROTECTION_KEYS = 2   /**< by a memory protection key, for each thread by itself; where none is
                                  to be had, as EM_PROTECTION_PAGES */
} em_protection;

/** What a child of fork() may do with the memory of an object that is open for writing. */
typedef enum em_in_children {
    EM_IN_CHILDREN_READ_ONLY = 0, /**< read it; stores fault */
    EM_IN_CHILDREN_PRIVATE = 1    /**< store to it as well; nobody else sees that, nothing commits it */
} em_in_children;

/** What a commit does about pointers that lead out of the object into memory that the next process
 * does not have: the C heap, a stack, a library, another store. */
typedef enum em_foreign_pointers {
    EM_FOREIGN_REPORT = 0, /**< commit, and report each place once, see em_on_foreign_pointer(). If
                                it leads into a program or library, its build is recorded: processes
                                that have another one, or have it elsewhere, get EM_OTHER_BUILD when
                                they open the object */
    EM_FOREIGN_REFUSE = 1, /**< fail with EM_FOREIGN_POINTER; nothing is committed or lost */
    EM_FOREIGN_ALLOW = 2   /**< do not look */
} em_foreign_pointers;

/** What opening an object does that has pointers into a build that this process has not. */
typedef enum em_other_builds {
    EM_OTHER_BUILDS_REFUSE = 0, /**< fail with EM_OTHER_BUILD */
    EM_OTHER_BUILDS_OPEN = 1    /**< open it: for programs that follow no such pointer */
} em_other_builds;

/** How bad a finding is. */
typedef enum em_severity {
    EM_LEFTOVER = 0, /**< left behind by a process that died; the next one tidies it up */
    EM_SUSPECT = 1,  /**< may be the trace of a loss and may be harmless */
    EM_DAMAGE = 2,   /**< something is lost or contradicts itself */
    EM_UNCHECKED = 3 /**< a file that could not be looked at; `found` says why */
} em_severity;

/** An open store. */
typedef struct em_store em_store;
/** An open object, for writing or for reading. */
typedef struct em_object em_object;

/** Choices for opening and making stores. Begin with EM_STORE_OPTIONS_DEFAULT; a zero or a NULL
 * is the default of its field. `size` is sizeof(em_store_options): libraries know older, shorter
 * ones. */
typedef struct em_store_options {
    size_t size;
    /** Addresses that a new store takes at first, rounded up to 1 GiB. Default: 64 GiB. They cost
     * nothing until something lies there. */
    uint64_t arena_bytes;
    /** Where in the address space a new store goes; multiples of 1 GiB, both or none. */
    uint64_t window_base;
    uint64_t window_end;
    /** How long to wait for an object that somebody else has open. Default: not at all. */
    uint32_t busy_timeout_ms;
    /** How long to wait for another process that changes the list of objects. Default: 10 s. */
    uint32_t catalog_timeout_ms;
    /** An em_verify. */
    uint32_t verify;
    /** An em_other_builds. */
    uint32_t other_builds;
    /** The file in which stores note the addresses they take; "" for none. Default: one in the
     * user's state directory. */
    const char *arena_registry;
    /** The application whose objects are to be made and opened, by its name. Default: none; then
     * only objects without an application open. */
    const char *application;
    /** EM_TAG_BYTES bytes of the caller's own, not all zero, instead of `application`. */
    const uint8_t *application_key;
} em_store_options;

#define EM_STORE_OPTIONS_DEFAULT \
    { sizeof(em_store_options), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL }

/** Choices of one writer. Begin with EM_WRITE_OPTIONS_DEFAULT; a zero is the default of its
 * field. `size` is sizeof(em_write_options). */
typedef struct em_write_options {
    size_t size;
    /** An em_durability. */
    uint32_t durability;
    /** With EM_DURABILITY_INTERVAL: the interval, at least 1. */
    uint32_t interval_ms;
    /** Bytes of log after which a commit is followed by a checkpoint. Default: 256 MiB. */
    uint64_t log_bytes_max;
    /** Bytes of changed pages that may be kept in memory after their commit, because storing to
     * them again costs less. Default: 256 MiB. */
    uint64_t hot_bytes_max;
    /** A commit this long after the last checkpoint is followed by one. Default: 60 s. */
    uint32_t checkpoint_after_ms;
    /** An em_when_log_full. */
    uint32_t when_log_full;
    /** Not zero: log changed pages whole, for disks whose sectors can be unreadable after a power
     * cut. */
    uint32_t log_full_pages;
    /** An em_protection; not with EM_SHARE. */
    uint32_t protection;
    /** With EM_SHARE, not zero: readers run beside the flush of a commit. A state that they see then
     * can go back: when the commit fails or is rolled back, or the machine stops before the flush is
     * done. Zero: readers wait for the acknowledgement, and no state that was seen goes back. */
    uint32_t early_read;
    /** An em_in_children. */
    uint32_t in_children;
    /** An em_foreign_pointers. */
    uint32_t foreign_pointers;
    /** Zero. */
    uint32_t reserved;
} em_write_options;

#define EM_WRITE_OPTIONS_DEFAULT { sizeof(em_write_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** A pointer out of an object that a commit found; it may be a number that looks like an address.
 * Its texts live as long as the callback runs. */
typedef struct em_foreign_pointer {
    size_t size;         /**< sizeof(em_foreign_pointer) of the library */
    const char *object;  /**< the object's name */
    uint64_t address;    /**< where the pointer lies in the object */
    uint64_t value;      /**< the address that it holds */
    const char *into;    /**< what is there: "the C heap", a stack, a file, another store */
    const char *message; /**< a sentence with all of it and the remedy */
} em_foreign_pointer;

/** What is known about an object. Set `size` to sizeof(em_object_info) before the call; a library
 * that knows a shorter one fills that. */
typedef struct em_object_info {
    size_t size;
    uint64_t created_ns;      /**< when it was made, since 1970-01-01 00:00 UTC */
    uint64_t file_bytes;      /**< bytes of its file */
    uint64_t base_address;    /**< its first address */
    uint64_t sequence;        /**< number of its last commit */
    uint64_t root_bytes;      /**< bytes of the root, 0 for none */
    uint64_t regions;         /**< ranges of addresses that it has */
    uint64_t capacity_bytes;  /**< bytes of addresses that its data may fill before it needs more */
    uint64_t backed_bytes;    /**< bytes of them that the file holds */
    uint64_t blocks;          /**< blocks allocated */
    uint64_t allocated_bytes; /**< their bytes, rounded up to what each occupies */
    uint64_t large_blocks;    /**< blocks of more than a slab among them */
    uint64_t large_bytes;     /**< bytes asked for by the owners of these */
    uint32_t mode;            /**< the em_mode it is open in */
    uint32_t protection;      /**< the em_protection in force */
    uint8_t root_tag[EM_TAG_BYTES];
    char uuid[40];            /**< its id, 32 hexadecimal digits; also the name of its file */
    char name[EM_NAME_BUFFER_BYTES];
    char root_description[EM_DESCRIPTION_BUFFER_BYTES + 7];
} em_object_info;

/** One thing that em_check() found. Its texts live as long as the callback runs. */
typedef struct em_finding {
    size_t size;          /**< sizeof(em_finding) of the library */
    uint32_t severity;    /**< an em_severity */
    uint32_t repairable;  /**< not zero: `evermap check --repair` can do something about it */
    const char *file;     /**< the file, as seen from the store's directory */
    const char *object;   /**< the object's name, NULL where it is not known */
    const char *what;     /**< which part of the file */
    const char *found;    /**< what is there */
    const char *expected; /**< what should be there */
    const char *remedy;   /**< what can be done */
} em_finding;

/** How much em_audit() and em_rebase() know of what an object holds. */
typedef enum em_typing {
    EM_TYPED = 0,  /**< the root's type is described: its pointer fields were followed */
    EM_PARTLY = 1, /**< the same as far as the description goes, the rest word by word */
    EM_UNTYPED = 2 /**< every aligned word that could be an address counts as one */
} em_typing;

/** What is wrong with pointers that em_audit() found. */
typedef enum em_audit_kind {
    EM_AUDIT_FOREIGN = 0,      /**< to what is no object: a program, its heap or stack, a library */
    EM_AUDIT_OTHER_STORE = 1,  /**< into an arena of another store */
    EM_AUDIT_NO_OBJECT = 2,    /**< into the store's addresses, where no object is */
    EM_AUDIT_OTHER_OBJECT = 3, /**< into another object of the store: works while both are open */
    EM_AUDIT_DANGLING = 4,     /**< into the object, where nothing is allocated */
    EM_AUDIT_METADATA = 5,     /**< into the object's own bookkeeping */
    EM_AUDIT_MISPLACED = 6,    /**< an owner's, into the middle of a block */
    EM_AUDIT_BROKEN = 7,       /**< a container that says more than its block holds */
    EM_AUDIT_SHARED = 8,       /**< to a block that has another owner: it would be freed twice */
    EM_AUDIT_LEAK = 100        /**< no pointer: blocks that nothing reaches from the root */
} em_audit_kind;

/** How sure it is that a word is a pointer. */
typedef enum em_confidence {
    EM_POSSIBLE = 0, /**< ordinary numbers may look like this */
    EM_LIKELY = 1,   /**< hardly anything but a pointer looks like this */
    EM_CERTAIN = 2   /**< its type says so */
} em_confidence;

/** Why blocks that nothing reaches may be no leaks. */
typedef enum em_doubt {
    EM_DOUBT_NONE = 0,
    EM_DOUBT_NO_ROOT = 1,            /**< there is no root to begin at */
    EM_DOUBT_NO_POINTERS = 2,        /**< no word of the root is an address of a block */
    EM_DOUBT_NO_POINTERS_BY_TYPE = 3 /**< by its type the root has no pointer to a block */
} em_doubt;

/** How em_rebase() knew words for addresses. */
typedef enum em_moved_kind {
    EM_MOVED_TYPED = 0,         /**< by their type */
    EM_MOVED_BEGINNING = 1,     /**< by their value: the beginning of a block of the object */
    EM_MOVED_INSIDE = 2,        /**< the middle of a block */
    EM_MOVED_NOT_ALLOCATED = 3, /**< in the object, where nothing is allocated */
    EM_MOVED_BOOKKEEPING = 4,   /**< in the object's own bookkeeping */
    EM_MOVED_OTHER_OBJECT = 5,  /**< in another object of the store */
    EM_MOVED_NOT = 100          /**< look like addresses and stay: no pointers by their type, or out
                                     of reach */
} em_moved_kind;

/** A word in an object. Lists of these do not grow: its size is fixed. */
typedef struct em_pointer_sample {
    const char *path; /**< how it is reached from the root, as "root.pages[3]" or "root +16" */
    uint64_t address; /**< where it lies */
    uint64_t value;   /**< where it leads; of an EM_AUDIT_LEAK, the block's bytes */
} em_pointer_sample;

/** Choices for em_audit(). Begin with EM_AUDIT_OPTIONS_DEFAULT; a zero is the default of its field.
 * `size` is sizeof(em_audit_options). */
typedef struct em_audit_options {
    size_t size;
    /** Bytes of the object that are kept in memory. Default: 1 GiB. */
    uint64_t memory_bytes;
    /** How many words of each kind come with a finding. Default: 5. */
    uint32_t samples;
    /** The process that uses the object, to name what foreign pointers lead to. Default: none; then
     * the range of an address says what it looks like. */
    uint32_t process_id;
} em_audit_options;

#define EM_AUDIT_OPTIONS_DEFAULT { sizeof(em_audit_options), 0, 0, 0 }

/** What em_audit() counted. Set `size` to sizeof(em_audit_report) before the call; a library that
 * knows a shorter one fills that. */
typedef struct em_audit_report {
    size_t size;
    uint64_t sequence;          /**< number of the commit that was read */
    uint64_t blocks;            /**< allocated blocks */
    uint64_t bytes;             /**< their bytes */
    uint64_t reached_blocks;    /**< those that the root leads to, its own too */
    uint64_t reached_bytes;     /**< their bytes */
    uint64_t leaked_blocks;     /**< those that nothing reaches; see `doubt` */
    uint64_t leaked_bytes;      /**< their bytes */
    uint64_t leaked_heads;      /**< those of them that no other one points at */
    uint64_t looked_at;         /**< words and pointer fields that were looked at */
    uint64_t interior;          /**< pointers into the middle of a block, which is legal */
    uint64_t damage;            /**< pointers that break a program that follows them */
    uint64_t suspect;           /**< pointers that may be stale, and may be harmless */
    uint64_t damaged_chunks;    /**< of the allocator: em_check() says more */
    uint32_t typing;            /**< an em_typing */
    uint32_t has_root;          /**< not zero: there is a root */
    uint32_t doubt;             /**< an em_doubt */
    uint32_t reserved;
} em_audit_report;

/** Pointers of one kind that lead to one place. Its texts and samples live as long as the callback
 * runs. */
typedef struct em_audit_finding {
    size_t size;         /**< sizeof(em_audit_finding) of the library */
    uint32_t kind;       /**< an em_audit_kind */
    uint32_t severity;   /**< EM_SUSPECT or EM_DAMAGE */
    uint32_t confidence; /**< an em_confidence */
    uint32_t reserved;
    uint64_t count;      /**< how many there are */
    const char *to;      /**< where they lead; of an EM_AUDIT_LEAK, why they may be no leaks, or "" */
    const em_pointer_sample *samples; /**< some of them */
    size_t sample_count; /**< how many of them */
} em_audit_finding;

/** Choices for em_backup() and em_restore(). Begin with EM_COPY_OPTIONS_DEFAULT. `size` is
 * sizeof(em_copy_options). */
typedef struct em_copy_options {
    size_t size;
    /** em_backup(): not zero: do not compare what is copied with its checksums. */
    uint32_t unverified;
    /** em_restore(): not zero: replace a store that is there, and nothing else. */
    uint32_t replace;
} em_copy_options;

#define EM_COPY_OPTIONS_DEFAULT { sizeof(em_copy_options), 0, 0 }

/** What em_backup() or em_restore() copied. Set `size` to sizeof(em_copy_report) before the call. */
typedef struct em_copy_report {
    size_t size;
    uint64_t objects;  /**< how many */
    uint64_t bytes;    /**< of their files */
    uint64_t findings; /**< damage that was found in what was copied: the copy has it too */
} em_copy_report;

/** Choices for em_rebase(). Begin with EM_REBASE_OPTIONS_DEFAULT. `size` is
 * sizeof(em_rebase_options). */
typedef struct em_rebase_options {
    size_t size;
    /** The first address that the store is to have, a multiple of 1 GiB. Default: a place that no
     * other store of the user has. */
    uint64_t to;
    /** Not zero: only find out which words would change; the store may be in use. */
    uint32_t dry_run;
    /** Not zero: go to `to` although another store of the user has noted that it is there; no process
     * can have both open then. */
    uint32_t force;
    /** How many words of each kind come with a call of the callback. Default: 5. */
    uint32_t samples;
    /** Zero. */
    uint32_t reserved;
} em_rebase_options;

#define EM_REBASE_OPTIONS_DEFAULT { sizeof(em_rebase_options), 0, 0, 0, 0, 0 }

/** What em_rebase() did, or would do. Set `size` to sizeof(em_rebase_report) before the call. */
typedef struct em_rebase_report {
    size_t size;
    uint64_t from;    /**< the first address that the store had */
    uint64_t to;      /**< the first that it has now; 0 for a dry run that was told none */
    uint64_t arenas;  /**< ranges of addresses that the store has */
    uint64_t objects; /**< objects that moved */
    uint64_t moved;   /**< words that changed */
    uint64_t kept;    /**< words that look like addresses and stayed */
    uint64_t met;     /**< ranges of other stores at the new place: no process can have both open */
    char kept_in[64]; /**< the directory in the store's that has the old files; "" for a dry run */
} em_rebase_report;

/** Words of one kind in one object that em_rebase() changes or leaves. Its texts and samples live as
 * long as the callback runs. */
typedef struct em_moved {
    size_t size;         /**< sizeof(em_moved) of the library */
    const char *object;  /**< the object's name */
    uint32_t typing;     /**< an em_typing */
    uint32_t kind;       /**< an em_moved_kind */
    uint64_t count;      /**< how many */
    const em_pointer_sample *samples; /**< some of them */
    size_t sample_count; /**< how many of them */
} em_moved;

/** Choices for em_export(). Begin with EM_EXPORT_OPTIONS_DEFAULT. `size` is
 * sizeof(em_export_options). */
typedef struct em_export_options {
    size_t size;
    /** Not zero: export an object although it has pointers to others, which lead nowhere in another
     * store. */
    uint32_t force;
    /** Zero. */
    uint32_t reserved;
} em_export_options;

#define EM_EXPORT_OPTIONS_DEFAULT { sizeof(em_export_options), 0, 0 }

/** What em_export() wrote. Set `size` to sizeof(em_export_report) before the call. */
typedef struct em_export_report {
    size_t size;
    uint64_t sequence;           /**< number of the commit */
    uint64_t pages;              /**< pages written */
    uint64_t bytes;              /**< bytes written */
    uint64_t pointers_elsewhere; /**< pointers to other objects of the store */
} em_export_report;

/** Choices for em_import(). Begin with EM_IMPORT_OPTIONS_DEFAULT. `size` is
 * sizeof(em_import_options). */
typedef struct em_import_options {
    size_t size;
    /** The name that the object gets. Default: the one that it had. */
    const char *name;
    /** Not zero: make a store if there is none. */
    uint32_t create;
    /** Zero. */
    uint32_t reserved;
} em_import_options;

#define EM_IMPORT_OPTIONS_DEFAULT { sizeof(em_import_options), NULL, 0, 0 }

/** What em_import() made. Set `size` to sizeof(em_import_report) before the call. */
typedef struct em_import_report {
    size_t size;
    uint64_t base_address;     /**< its first address */
    uint64_t old_base_address; /**< the first that it had; the same when nothing was rewritten */
    uint64_t file_bytes;       /**< bytes of its file */
    uint64_t moved;            /**< words that were rewritten */
    uint64_t kept;             /**< words that look like addresses of the old place and stayed */
    uint32_t points_elsewhere; /**< not zero: it had pointers to other objects, which lead nowhere */
    uint32_t reserved;
    char name[EM_NAME_BUFFER_BYTES];
    char old_name[EM_NAME_BUFFER_BYTES];
} em_import_report;

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

/** The status of the thread's last failed call; EM_OK before the first. */
em_status em_last_error(void);

/** What happened in the thread's last failed call, with cause and remedy; "" before the first.
 * Owned by the library and valid until the thread's next failing call or its end. */
const char *em_last_error_message(void);

/** Forgets the thread's last error. */
void em_clear_error(void);

/** The name of a status as in this header ("EM_BUSY"), or "unknown status". Never NULL. */
const char *em_status_name(em_status status);

/** The library's version, "major.minor.patch". */
const char *em_version(void);

/* ---- Stores -------------------------------------------------------------------------------- */

/** Opens the store in a directory; `options` may be NULL. Reserves the store's addresses and maps
 * nothing: some 20 us. Opening one store many times is cheap; each opening is closed once. While
 * this process has the store open, by another handle or by EVERMAP_RESERVE, the options of its
 * first opening hold, the application aside.
 * Errors: EM_NO_STORE; EM_ADDRESS_TAKEN when something else lies at the store's addresses;
 * EM_FOREIGN, EM_DAMAGED, EM_NEWER_FORMAT, EM_NOT_PERMITTED, EM_TOO_MANY_OPEN. */
em_status em_store_open(const char *path, const em_store_options *options, em_store **store);

/** Makes a store in a directory, which must be empty or not exist, and opens it.
 * Errors: EM_STORE_EXISTS, EM_NOT_PERMITTED, EM_DISK_FULL, and those of em_store_open(). */
em_status em_store_create(const char *path, const em_store_options *options, em_store **store);

/** Opens the store in a directory, and makes one if there is none. Errors as above. */
em_status em_store_open_or_create(const char *path, const em_store_options *options,
                                  em_store **store);

/** Ends a handle. Objects opened through it stay open. */
em_status em_store_close(em_store *store);

/** Opens the store in a directory for as long as the process lives, so that nothing else is put
 * at its addresses. What EVERMAP_RESERVE, a list of paths with ':' between, does for a program
 * before its main() runs; there a failure is a line on stderr. Errors: as em_store_open(). */
em_status em_store_reserve(const char *path);

/** Calls `callback` with each object's name, in the order they were made; the names were
 * collected before the first call. Each lives as long as its call. */
em_status em_store_list(em_store *store, em_name_callback callback, void *context);

/** Is there an object of this name? Errors: EM_INVALID_NAME. */
em_status em_store_contains(em_store *store, const char *name, bool *contains);

/** Removes an object, durably. Open readers of it stay valid.
 * Errors: EM_NOT_FOUND; EM_BUSY when it is being written. */
em_status em_store_remove(em_store *store, const char *name);

/** Gives an object another name, durably. Who has it open goes on.
 * Errors: EM_NOT_FOUND, EM_ALREADY_EXISTS, EM_INVALID_NAME. */
em_status em_store_rename(em_store *store, const char *from, const char *to);

/** Writes the name of the store's object that has `address`, open or not, into `buffer` of `size`
 * bytes (EM_NAME_BUFFER_BYTES hold every name). Reads every object's entry; for objects that are
 * open here em_object_of() is quicker.
 * Errors: EM_NOT_FOUND when none has it; EM_INVALID_ARGUMENT when the buffer is too small. */
em_status em_store_object_at(em_store *store, const void *address, char *buffer, size_t size);

/** The key of an application's name, as em_store_options.application makes it. */
em_status em_application_key(const char *name, uint8_t key[EM_TAG_BYTES]);

/* ---- Objects ------------------------------------------------------------------------------- */

/** Makes an object with an empty heap and no root, durably. It belongs to the store handle's
 * application, if that has one. It is not open then.
 * Errors: EM_ALREADY_EXISTS, EM_INVALID_NAME (a name is 1 to 255 bytes of UTF-8 without control
 * characters, and not "." or ".."; '/' is a character like any other), EM_DISK_FULL. */
em_status em_object_create(em_store *store, const char *name);

/** As em_object_create(), with room for a block of `bytes` bytes, or for many that are smaller: disk
 * space that nobody else can take. Costs no more flushes than without; em_reserve() afterwards would
 * cost up to five. The object's first session leaves the room with it, used or not; later ones give
 * back what is free, unless they reserve themselves.
 * Errors: as there, and EM_OUT_OF_ADDRESSES. */
em_status em_object_create_sized(em_store *store, const char *name, uint64_t bytes);

/** Opens an object. `options` is for EM_WRITE and EM_SHARE and may be NULL. Costs some ten system calls,
 * whatever the object's size; pages are read when they are touched.
 * EM_READ maps the last commit read-only (a store to it is SIGSEGV) until em_refresh() or
 * em_object_close(). EM_WRITE maps it writable; an object whose last writer was killed is
 * recovered first. In one process a writer and readers of one object exclude each other. EM_SHARE
 * maps it as EM_WRITE does, for threads that read and write it under locks; opened again, with the
 * same options, it is the same mapping.
 * Errors: EM_NOT_FOUND, EM_BUSY, EM_OTHER_APPLICATION, EM_DAMAGED, EM_LOG_MISSING,
 * EM_ADDRESS_TAKEN, EM_NOT_PERMITTED, EM_TOO_MANY_OPEN. */
em_status em_object_open(em_store *store, const char *name, em_mode mode,
                         const em_write_options *options, em_object **object);

/** Ends a handle. The object's memory is no longer mapped (unless other handles of this process have
 * it open), so every pointer into it dangles.
 * Errors: EM_UNCOMMITTED when there are changes that no commit has: em_commit(), or em_rollback() to
 * forget them, and close again; EM_BUSY, also while a thread has a shared object locked. The object
 * stays open then. After a failed flush: what it met; the object is closed then. */
em_status em_object_close(em_object *object);

/* An object that is open with EM_SHARE is read and written under locks. Each lock is unlocked once, by
 * the thread that took it, before the thread ends. To read is to follow em_root(); to write is to
 * store to the object's memory, to allocate and free in it, and em_set_root(), em_commit(),
 * em_rollback(), em_reserve(), em_release(), em_shrink(), em_info() and em_verified(), which give
 * EM_NOT_LOCKED without the lock, and are the locking thread's alone. em_checkpoint() and em_sync() are
 * called without a lock, and readers stay meanwhile. */

/** Locks a shared object for reading: waits while a thread writes it. A thread that reads already
 * reads on at once, also while a writer waits. Without a writer this waits for nobody: some atomic
 * additions, none of them on a line that another processor changes.
 * Errors: EM_WOULD_DEADLOCK when the thread writes it; EM_DURABILITY_UNKNOWN after a failed flush: close
 * the object in this process and open it again; EM_FORKED in a child of a process that was writing it;
 * EM_INVALID_ARGUMENT when it is not shared. */
em_status em_read_lock(em_object *object);

/** Ends a read of the calling thread. Errors: EM_NOT_LOCKED; EM_INVALID_ARGUMENT when the object is not
 * shared. */
em_status em_read_unlock(em_object *object);

/** Locks a shared object for writing: waits for earlier writers, then for the readers that are there.
 * Readers that come meanwhile wait. After em_commit() with `early_read`, readers are there again:
 * call em_write_begin() before the next store, which waits for them.
 * Errors: as em_read_lock(), and EM_WOULD_DEADLOCK also when the thread reads it. */
em_status em_write_lock(em_object *object);

/** Ends the write section of the calling thread.
 * Errors: EM_NOT_LOCKED; EM_UNCOMMITTED when there are changes that no commit has: the thread still has
 * the lock then; EM_INVALID_ARGUMENT when the object is not shared. */
em_status em_write_unlock(em_object *object);

/** Writes the object's name when it was opened into `buffer` of `size` bytes.
 * Errors: EM_INVALID_ARGUMENT when the buffer is too small. */
em_status em_object_name(em_object *object, char *buffer, size_t size);

/** The open object of this process that has `address`, or NULL when none has: of several handles
 * that read one object, one of them. Some nanoseconds; sets no error. */
em_object *em_object_of(const void *address);

/** The object's first address, the same in every process; NULL on failure. No block begins there. */
void *em_object_base(em_object *object);

/** Do `size` bytes from `address` lie in the object? False for what is no open object. */
bool em_contains(em_object *object, const void *address, size_t size);

/* ---- The root ------------------------------------------------------------------------------ */

/** The object's root, changes that are not committed included; NULL for none and on failure
 * (which sets errno). */
void *em_root(em_object *object);

/** Bytes that were said to belong to the root; 0 for none and on failure. */
size_t em_root_size(em_object *object);

/** The tag that says what the root is: zeros, or what em_set_root() was given, or the id of a Rust
 * type. */
em_status em_root_tag(em_object *object, uint8_t tag[EM_TAG_BYTES]);

/** Writes the description that belongs to the tag into `buffer`, cut to `size` bytes
 * (EM_DESCRIPTION_BUFFER_BYTES hold every one). */
em_status em_root_description(em_object *object, char *buffer, size_t size);

/** Makes `root` the object's root with the next commit: an allocated block of the object with at
 * least `size` bytes, or NULL for none. `tag` may be NULL (zeros), `description` too ("").
 * The old root's memory is left alone. Who gives the id of a Rust type as the tag has a valid value of
 * that type there, in blocks of this object: Rust programs believe it.
 * Errors: EM_BAD_ROOT when it is no such block (em_commit() looks again: it may have been freed),
 * EM_READ_ONLY. */
em_status em_set_root(em_object *object, void *root, size_t size,
                      const uint8_t tag[EM_TAG_BYTES], const char *description);

/* ---- Pointers out of objects ---------------------------------------------------------------- */

/** Sets what gets the pointers that commits report, in the thread that commits; for all objects of
 * the process. The callback must not use the object that is committed. With NULL, as at first, the
 * first eight of each object go to standard error. */
void em_on_foreign_pointer(em_foreign_callback callback, void *context);

/** Says that these bytes of the object hold addresses of the process by design, such as a table of
 * functions that each process writes anew: this session's commits leave them alone. With EM_SHARE,
 * the calling thread has to have the write lock; the same goes for the next two.
 * Errors: EM_INVALID_ARGUMENT when they are not the object's, EM_READ_ONLY, EM_NOT_LOCKED. */
em_status em_expect_foreign(em_object *object, const void *address, size_t size);

/** Makes pointers into this program's functions and static data legal in the object, and records
 * the program's build with the next commit: processes that have another build get EM_OTHER_BUILD
 * when they open the object. For programs with a fixed address, linked with -no-pie. Must be alone
 * without EM_SHARE, see THREADS.
 * Errors: EM_UNSUPPORTED for a program whose address is another one in each process, EM_READ_ONLY. */
em_status em_register_code(em_object *object);

/** Takes away, with the next commit, which builds the object's pointers lead into: for a program
 * that has removed or replaced them. Must be alone without EM_SHARE, see THREADS.
 * Errors: EM_READ_ONLY, EM_NOT_LOCKED. */
em_status em_forget_code(em_object *object);

/* ---- Commits ------------------------------------------------------------------------------- */

/** Makes everything done since the last commit durable, all of it or nothing; `changed`, which may
 * be NULL, tells whether there was anything. Must be alone, see THREADS.
 * Errors: EM_BUSY, EM_READ_ONLY, EM_DISK_FULL, EM_LOG_FULL, EM_BAD_ROOT: nothing was lost, commit
 * again when the cause is gone. EM_DURABILITY_UNKNOWN: close and open again. EM_DAMAGED, from a
 * verification in the background. EM_IO or EM_ADDRESS_TAKEN when the object has new addresses to note in
 * the store's list and the store is no longer at its path: every commit fails until the directory has
 * its name back or em_rollback() gives the new addresses up. */
em_status em_commit(em_object *object, bool *changed);

/** Forgets everything done since the last commit; pointers to what was allocated since dangle.
 * Must be alone, see THREADS. Errors: EM_BUSY, EM_READ_ONLY. */
em_status em_rollback(em_object *object);

/** Writes all commits to the object's file and empties its log; `done`, which may be NULL, is
 * false while readers of older commits are in the way. Never needed; costs a flush.
 * Errors: EM_BUSY, EM_READ_ONLY, EM_DISK_FULL. */
em_status em_checkpoint(em_object *object, bool *done);

/** Makes everything committed so far durable, at any em_durability. Errors: EM_BUSY, EM_READ_ONLY,
 * EM_DURABILITY_UNKNOWN. */
em_status em_sync(em_object *object);

/** For an object open for reading: goes on to its newest commit; `changed`, which may be NULL,
 * tells whether there was a newer one. Pointers into the older commit dangle then, unless they
 * point to what both have at the same place. For an object open for writing: changes nothing.
 * Errors: EM_BUSY when other handles of this process read the older commit, or see THREADS: the
 * object stays what it was. After any other error it is closed. */
em_status em_refresh(em_object *object, bool *changed);

/** For an object open for reading: lays `size` bytes over what it has at `address`, for this process
 * only and until em_refresh() or em_object_close(). The pages they lie in become the process's own.
 * For what has to be the process's own in an object, such as addresses of its code. Every handle of
 * this process that reads the object sees it, and no thread may read those bytes meanwhile.
 * Errors: EM_INVALID_ARGUMENT when they do not lie in the object's data, or it is open for writing. */
em_status em_patch(em_object *object, const void *address, const void *bytes, size_t size);

/** Number of the last commit, or of the commit that is read; 0 on failure. */
uint64_t em_sequence(em_object *object);

/** Was every page compared with its checksum, as em_store_options.verify asked for? `done` is
 * false while that goes on. Errors: EM_DAMAGED, with the first bad page. */
em_status em_verified(em_object *object, bool *done);

/** Fills `info`, whose `size` must be set; for a writer, allocations that are not committed
 * included. Counts blocks: some microseconds a GiB. Errors: EM_INVALID_ARGUMENT, EM_IO. */
em_status em_info(em_object *object, em_object_info *info);

/* ---- Write protection -----------------------------------------------------------------------
 * An object that was opened with em_write_options.protection is closed to stores: one that goes
 * astray is SIGSEGV where it happens, and the last commit is as it was. The program opens it while
 * it stores. The library's own functions (the heap's, em_set_root(), commits) open it for
 * themselves; the block that em_malloc() gives is closed. */

/** Opens a protected object to stores, until em_write_end() was called as often; nothing for one
 * that is not protected. With keys in force for the calling thread, and those it starts meanwhile, in
 * some 20 ns; with pages for all threads, in two system calls for the first and the last. Many
 * stores belong between the two. Nests.
 * Errors: EM_READ_ONLY, EM_BUSY, and EM_IO when the kernel refuses. */
em_status em_write_begin(em_object *object);

/** Ends what em_write_begin() began: with keys in the same thread.
 * Errors: EM_INVALID_ARGUMENT when nothing was begun; EM_READ_ONLY, EM_BUSY. */
em_status em_write_end(em_object *object);

/** Takes memory protection keys from the kernel, for objects that are protected later: false where
 * there are none. Keys are to be had only while the process has one thread, so a program that starts
 * threads early calls this at the beginning of main(). Sets no error. */
bool em_prepare_keys(void);

/* ---- The heap ------------------------------------------------------------------------------
 * All of them need an object open for writing: else NULL (or the status) and EM_READ_ONLY. Blocks
 * are aligned to at least 16 bytes. An allocation touches the disk only when the object has to
 * grow, by reserving blocks of its file. Failures: EM_BAD_ALLOCATION (more than
 * EM_ALLOCATION_BYTES_MAX, or an alignment that is no power of two), EM_DISK_FULL,
 * EM_OUT_OF_ADDRESSES; the heap is unchanged then. */

/** A block of `size` bytes with unspecified contents, or NULL. Of 0 bytes: a block of its own. */
void *em_malloc(em_object *object, size_t size);

/** A block of `count` times `size` zero bytes, or NULL; a product that overflows is
 * EM_BAD_ALLOCATION. */
void *em_calloc(em_object *object, size_t count, size_t size);

/** Changes a block's size, moving it when it must, and gives its address, or NULL: the old block
 * is untouched then. A NULL `pointer` is em_malloc(); a `size` of 0 leaves a block of its own. A
 * pointer that is no allocated block of the object aborts as in em_free(). An alignment of more
 * than 16 is not kept when the block moves. */
void *em_realloc(em_object *object, void *pointer, size_t size);

/** A block of `size` bytes at a multiple of `alignment`, any power of two; or NULL. Freed with
 * em_free(). */
void *em_aligned_alloc(em_object *object, size_t alignment, size_t size);

/** Frees a block; NULL is nothing. A pointer that is not an allocated block of the object (freed
 * already, from elsewhere, or inside of a block), and an object that cannot be used (closed, open
 * for reading, forked, being committed by another thread), prints on stderr what it is and
 * aborts: going on would hand the same memory out twice. */
void em_free(em_object *object, void *pointer);

/** As em_free(), but what aborts there is a status here, and nothing was freed.
 * Errors: EM_INVALID_FREE, EM_CLOSED, EM_READ_ONLY, EM_FORKED, EM_BUSY. */
em_status em_try_free(em_object *object, void *pointer);

/** Bytes that may be used of an allocated block, at least what was asked for; 0 when `pointer` is
 * no allocated block of the object, and on failure. */
size_t em_usable_size(em_object *object, const void *pointer);

/** Makes room for a block of `bytes` bytes, or many that are smaller: addresses and file blocks, so
 * that allocating them meets no full disk; durable on return, and left with the object at closing.
 * Commits what was done so far. Must be alone, see THREADS. Errors: EM_DISK_FULL,
 * EM_OUT_OF_ADDRESSES, EM_READ_ONLY, and those of em_commit(): the session keeps the new addresses then,
 * until it commits or rolls back. */
em_status em_reserve(em_object *object, uint64_t bytes);

/** Gives up to `bytes_max` bytes of the object's unused end back to the file system, as whole
 * pages; `bytes`, which may be NULL, tells how many: fewer when less is unused, or readers of older
 * commits use it. Commits what was done so far. Must be alone, see THREADS. Errors: EM_READ_ONLY,
 * and those of em_commit(). */
em_status em_release(em_object *object, uint64_t bytes_max, uint64_t *bytes);

/** Gives all disk space that the object does not need back to the file system, its unused end and
 * what is free in the middle; `bytes`, which may be NULL, tells how much. Nothing moves. Commits
 * what was done so far. Must be alone, see THREADS. Errors: as em_release(). */
em_status em_shrink(em_object *object, uint64_t *bytes);

/* ---- Tools --------------------------------------------------------------------------------- */

/** Checks the store in a directory, open or not, and calls `callback` (NULL for none) with each
 * finding. Changes nothing; reads all of every object.
 * Errors: EM_DAMAGED when a finding is worse than EM_LEFTOVER; when files could not be looked at,
 * what kept the first from it; EM_NO_STORE. */
em_status em_check(const char *path, em_finding_callback callback, void *context);

/** Looks for what raw pointers do wrong in one object of the store in a directory, as of its last
 * commit, and for blocks that nothing reaches; calls `callback` (NULL for none) with each finding,
 * the worst first, leaks last. `options` may be NULL. Maps nothing and changes nothing; the object may
 * be in use. Some seconds for five million blocks, 10 bytes of memory each.
 * What is found is no failure: look at `report->damage`.
 * Errors: EM_NO_STORE, EM_NOT_FOUND; EM_DAMAGED when the catalog or the object cannot be read. */
em_status em_audit(const char *path, const char *name, const em_audit_options *options,
                   em_audit_report *report, em_audit_callback callback, void *context);

/** Copies the store in a directory, which may be in use, to the directory `to`, which must be empty or
 * not exist: every object as of one commit. The copy is a store, complete or not there, at the same
 * addresses: a process can have one of the two open. Calls `callback` (NULL for none) with each
 * damage that was copied. `options` may be NULL.
 * Damage that could be copied is no failure: look at `report->findings`.
 * Errors: EM_NO_STORE, EM_STORE_EXISTS, EM_DISK_FULL, EM_NOT_PERMITTED; EM_DAMAGED when something
 * cannot be read at all. There is no copy then. */
em_status em_backup(const char *path, const char *to, const em_copy_options *options,
                    em_copy_report *report, em_finding_callback callback, void *context);

/** Makes the store in the directory `path` of a backup, which is checked first and stays as it is.
 * A store that is there is replaced when `options` says so, in one step, and must not be in use.
 * `options` may be NULL.
 * Errors: EM_NO_STORE when the backup is none; EM_DAMAGED when it is; EM_STORE_EXISTS, EM_BUSY,
 * EM_DISK_FULL, EM_NOT_PERMITTED. What is at `path` is as it was then. */
em_status em_restore(const char *backup, const char *path, const em_copy_options *options,
                     em_copy_report *report);

/** Moves the store in a directory to other addresses, by rewriting the pointers in it: by their type
 * where the type of an object's root is known, else every word that looks like an address of the
 * store. Look at a dry run first. Calls `callback` (NULL for none) with each kind of word in each
 * object, when all is done. `options` may be NULL. Nobody may have the store open; it takes twice the
 * room, until `kept_in` is removed.
 * Errors: EM_BUSY, EM_NO_STORE, EM_DAMAGED, EM_DISK_FULL, EM_NOT_PERMITTED, EM_UNSUPPORTED;
 * EM_BAD_BASE for an address where no store can be, or this one is; EM_ADDRESS_TAKEN where something
 * else is, or another store (see `force`). The store is as it was then. */
em_status em_rebase(const char *path, const em_rebase_options *options, em_rebase_report *report,
                    em_moved_callback callback, void *context);

/** Takes the last rebase of the store in a directory back: the old files take their place again. With
 * `force` also when something was committed since, which is lost.
 * Errors: EM_NOTHING_KEPT, EM_CHANGED_SINCE, EM_BUSY, EM_NO_STORE. The store is as it was then. */
em_status em_rebase_undo(const char *path, bool force);

/** Writes one object's last commit to a file descriptor, front to back, for em_import() in another
 * store or on another machine: a file or a pipe. The descriptor stays open and is not flushed; what
 * was written before a failure is no export. `options` may be NULL. Every page is compared with its
 * checksum first; the object may be in use.
 * Errors: EM_POINTS_ELSEWHERE (see `force`), EM_DAMAGED, EM_NO_STORE, EM_NOT_FOUND, EM_DISK_FULL,
 * EM_IO. */
em_status em_export(const char *path, const char *name, int descriptor,
                    const em_export_options *options, em_export_report *report);

/** Makes an object of what em_export() wrote, read from a file descriptor to its end; the descriptor
 * stays open. At its old addresses when they are this store's and free, else at others, rewriting
 * pointers as em_rebase() does. Appears durably or not at all. `options` may be NULL.
 * Errors: EM_FOREIGN, EM_NEWER_FORMAT, EM_BAD_EXPORT for what is no whole export;
 * EM_ALREADY_EXISTS, EM_INVALID_NAME, EM_NO_STORE, EM_DISK_FULL, EM_OUT_OF_ADDRESSES. */
em_status em_import(const char *path, int descriptor, const em_import_options *options,
                    em_import_report *report);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_H */
