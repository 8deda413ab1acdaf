/*
 * evermap_transfer.h - files and streams by the cheapest path that the kernel has.
 *
 *     em_transfer_report report = { sizeof report };
 *     if (evermap_copy("from", "to", NULL, &report) != EM_OK)
 *         return fprintf(stderr, "%s\n", em_last_error_message()), 1;
 *     printf("%llu bytes by %s: %s\n", (unsigned long long)report.data_bytes, report.engine, report.why);
 *
 * Which way bytes go (shared blocks, copy_file_range, splice, mappings, direct I/O, ...) is picked by
 * what is cached, by file system, size and durability; where one way is refused the next goes on.
 * These functions need no store, and their names begin with the library's because what begins with
 * em_ and copies is about stores: em_backup().
 *
 * What evermap.h says of results, units, threads, callbacks and forked children holds here as well. Several
 * transfers may run at a time. A peer that goes away is an error: SIGPIPE is never raised.
 */
#ifndef EVERMAP_TRANSFER_H
#define EVERMAP_TRANSFER_H

#include "evermap.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What holds when a transfer has succeeded. */
typedef enum em_copy_durability {
    EM_COPY_DURABILITY_NONE = 0, /**< the kernel has it: a power cut may lose it */
    EM_COPY_DURABILITY_DATA = 1, /**< its bytes are on the disk before it has its name */
    EM_COPY_DURABILITY_FULL = 2  /**< the same, and its name is on the disk too */
} em_copy_durability;

/** Whether blocks may be shared with the source. */
typedef enum em_reflink {
    EM_REFLINK_AUTO = 0,  /**< where the file system can */
    EM_REFLINK_NEVER = 1, /**< the copy has blocks of its own: damage to one is no damage to both */
    EM_REFLINK_ALWAYS = 2 /**< nothing else will do */
} em_reflink;

/** What a copy leaves out: sums of these are em_transfer_options.without. */
typedef enum em_without {
    EM_WITHOUT_MODE = 1,  /**< permissions: the umask has its way */
    EM_WITHOUT_OWNER = 2, /**< user and group */
    EM_WITHOUT_TIMES = 4, /**< of the last access and change */
    EM_WITHOUT_XATTRS = 8 /**< extended attributes, and with them ACLs */
} em_without;

/** What an em_explanation is about. */
typedef enum em_explained {
    EM_EXPLAINED_USED = 0,     /**< an engine that moved `bytes`; `why` that it came first, or "" */
    EM_EXPLAINED_NOT_USED = 1, /**< an engine that was not used, or not to the end, and why */
    EM_EXPLAINED_TRIED = 2,    /**< what was found out on the way */
    EM_EXPLAINED_NOT_KEPT = 3, /**< an attribute that the target lacks: `what`, of the file `path` */
    EM_EXPLAINED_FAILED = 4,   /**< what of a directory could not be copied */
    EM_EXPLAINED_CONNECTION = 5 /**< `bytes` over one connection, by engine `what`; `path` is the other end. `copies` is not known */
} em_explained;

/** One line of what a transfer has to say for itself. Its texts live as long as the callback runs; none is
 * NULL. */
typedef struct em_explanation {
    size_t size;       /**< sizeof(em_explanation) of the library */
    uint32_t kind;     /**< an em_explained */
    uint32_t copies;   /**< how often the processor copies each byte in this way */
    uint64_t bytes;    /**< that went this way */
    const char *what;  /**< the engine, or the attribute */
    const char *path;  /**< the file, or "" */
    const char *why;   /**< a sentence */
} em_explanation;

/** Called with one explanation after another; false for no more. */
typedef bool (*em_explanation_callback)(const em_explanation *explanation, void *context);

/** Called some ten times a second while bytes are moved, and once when all are: how many have arrived, and
 * how many there are (0 where that is not known). False ends the transfer with EM_CANCELLED. */
typedef bool (*em_progress_callback)(uint64_t arrived_bytes, uint64_t total_bytes, void *context);

/** Choices for a transfer. Begin with EM_TRANSFER_OPTIONS_DEFAULT; a zero or a NULL is the default of
 * its field. `size` is sizeof(em_transfer_options). A choice that a function has no use for is
 * EM_INVALID_ARGUMENT; in brackets stands who has. */
typedef struct em_transfer_options {
    size_t size;
    /** This way and no other, by its name: "read-write", "mmap-write", "mmap-direct", "sendfile", "splice",
     * "dual-pipe", "dual-pipe-interleaved", "copy-file-range", "reflink", "uring", "uring-splice",
     * "uring-direct". Default: picked. */
    const char *engine;
    /** Not zero in what it points to, set by another thread or a signal handler, ends the transfer within a
     * tenth of a second; a call that waits for a silent peer only if that descriptor does not block. An int,
     * as sig_atomic_t is. */
    const volatile int *cancelled;
    /** Is told how far it is. */
    em_progress_callback progress;
    /** Is told how it was done, after success. */
    em_explanation_callback explain;
    /** What both get. */
    void *context;
    /** An em_copy_durability; what a receiver keeps to before its sender is told. [copy, move, receive] */
    uint32_t durability;
    /** An em_reflink. [copy, move] */
    uint32_t reflink;
    /** Not zero: read back what was stored, and compare it with the source, before it gets its name. [copy, send, receive] */
    uint32_t verify;
    /** Not zero: when interrupted, leave a part; go on with the one that is there. [copy, of a file] */
    uint32_t resume;
    /** Not zero: copy the rest of a directory that has things which cannot be copied. [copy] */
    uint32_t keep_going;
    /** Not zero: leave out what is on other file systems than the directory that is copied. [copy] */
    uint32_t one_file_system;
    /** Threads that copy a directory. Default: as many as there are processors, up to 8. [copy] */
    uint32_t threads;
    /** Not zero: leave the source's holes out, for a target that has nothing, holes or zeros there. [move] */
    uint32_t sparse;
    /** Where to begin, in both files. [move] */
    uint64_t begin_bytes;
    /** How many bytes. Default: up to the source's end. [move] */
    uint64_t length_bytes;
    /** A sum of em_without: what not to keep. Default: all is kept. [copy] */
    uint32_t without;
    /** Connections at a time, 1 to 64. Default: 1. [send] */
    uint32_t connections;
    /** Not zero: bytes and nothing else over one connection, to or from programs that are not Evermap. Only
     * the end says that it is the end, so nobody knows whether all has come. [send, receive] */
    uint32_t raw;
    /** Not zero: throw away what comes, to measure senders and networks; the target may be NULL. [receive] */
    uint32_t discard;
    /** How long to wait for a sender. Default: for as long as it takes. [receive] */
    uint32_t wait_ms;
    /** How long nothing may move. Default: a minute. A peer that is at work gives a sign every second, so less
     * than 3000 ends transfers that are well. [send, receive] */
    uint32_t idle_ms;
} em_transfer_options;

#define EM_TRANSFER_OPTIONS_DEFAULT \
    { sizeof(em_transfer_options), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a transfer did, and has cost. Set `size` to sizeof(em_transfer_report) before the call; a library
 * that knows a shorter one fills that. Times, faults and switches are the process's, between begin and end. */
typedef struct em_transfer_report {
    size_t size;
    uint64_t size_bytes;           /**< of the file, or of all files of a directory */
    uint64_t data_bytes;           /**< of these, what was moved or shared */
    uint64_t hole_bytes;           /**< of these, what are holes in source and target */
    uint64_t resumed_bytes;        /**< of these, what an interrupted copy had brought already */
    uint64_t calls;                /**< system calls that moved data */
    uint64_t wall_ns;              /**< time that passed */
    uint64_t user_ns;              /**< processor time in programs */
    uint64_t system_ns;            /**< processor time in the kernel */
    uint64_t flush_ns;             /**< of the time that passed, what flushing took */
    uint64_t minor_faults;         /**< page faults without the disk */
    uint64_t major_faults;         /**< page faults with it */
    uint64_t voluntary_switches;   /**< because a thread waited */
    uint64_t involuntary_switches; /**< because another one was let on */
    uint64_t files;                /**< files that were copied */
    uint64_t directories;          /**< directories that were copied */
    uint64_t failed;               /**< things of a directory that could not be copied (`keep_going`) */
    uint64_t not_kept;             /**< attributes that the target lacks */
    uint32_t copied_permille;      /**< how often the processor copied each byte, times 1000; 0 for networks */
    uint32_t verified;             /**< not zero: what was stored was read back, and is the same */
    char engine[32];               /**< what moved most of the bytes, or "" */
    char why[224];                 /**< why the first engine was picked, cut to fit; "" for networks */
    uint32_t published;            /**< over a network, not zero: the receiver's file has its name */
    uint32_t connections;          /**< that carried it; 0 without a network */
    char name[EM_NAME_BUFFER_BYTES]; /**< of the file that was received, without its directory, or "" */
} em_transfer_report;

/** Copies a file, or a directory with all that is in it, to a name; into a directory that is there under
 * the source's name. The target has its name only when it is complete, and what had the name keeps
 * it until then; a directory that is there is merged into, file by file. Holes stay holes; mode,
 * owner, times, ACLs and extended attributes are kept as far as this user may. Something that is no
 * regular file, a FIFO or a terminal, is written into. `options` and `report` may be NULL.
 * Errors: EM_DISK_FULL, before the first byte wherever the file system can tell; EM_SOURCE_CHANGED,
 * EM_DIFFERS, EM_REFUSED, EM_CANCELLED, EM_NOT_PERMITTED, EM_IO; EM_BUSY when another process resumes
 * the same copy; EM_INVALID_ARGUMENT for a file onto itself. The source is never changed. */
em_status evermap_copy(const char *source, const char *target, const em_transfer_options *options,
                       em_transfer_report *report);

/** Moves bytes between two open descriptors of any kind: files, pipes, sockets, devices. Between files offsets
 * are the same in both, and the descriptors' positions play no part; what has no offsets is read from
 * where it stands, and written at its end. Both stay open. What is in the target behind what was written stays.
 * `options` and `report` may be NULL.
 * Errors: EM_DISK_FULL, EM_REFUSED, EM_CANCELLED, EM_IO (with EPIPE for a peer that has gone);
 * EM_SOURCE_CHANGED when the source ends before `length_bytes`. What has arrived stays in the target. */
em_status evermap_move(int source, int target, const em_transfer_options *options,
                       em_transfer_report *report);

/*
 * NETWORKS. An address is "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". Nothing is encrypted, and nobody is asked
 * who they are: for this machine, for networks that are trusted, or through a tunnel. Listen where only they can
 * connect whom you trust.
 */

/** Sends one file to who receives at an address. Success means that the receiver has published the file,
 * unless it throws away or the bytes are `raw`. A symbolic link is followed. `options` and `report` may be NULL.
 * Errors: EM_PEER when there is no connection, it broke, or the receiver gave up, with its reason (if
 * that was after everything else, the message says that the file may be there); EM_SOURCE_CHANGED, EM_DIFFERS: the
 * receiver was told to discard, and has; EM_REFUSED, EM_CANCELLED, EM_NOT_PERMITTED, EM_IO. */
em_status evermap_send(const char *source, const char *address, const em_transfer_options *options,
                       em_transfer_report *report);

/** Listens at an address, receives one file and listens no more. The file gets the name `target`; in a
 * directory the one that the sender has for it. It has the name when all of it is there; what had it is
 * replaced in one step, and a transfer that fails leaves nothing. Something that is no regular file is written into. Whoever
 * connects and speaks something else is sent away. `options` and `report` may be NULL.
 * Errors: EM_PEER when the address cannot be had, nobody came within `wait_ms`, or the sender went away;
 * EM_DISK_FULL, EM_SOURCE_CHANGED, EM_DIFFERS, EM_REFUSED, EM_CANCELLED, EM_NOT_PERMITTED, EM_IO. */
em_status evermap_receive(const char *address, const char *target, const em_transfer_options *options,
                          em_transfer_report *report);

/** A receiver that listens: a handle, as em_store is. */
typedef struct evermap_receiver evermap_receiver;

/** Listens at an address until evermap_receiver_close(). Port 0 is any that is free. Who connects waits until
 * evermap_receiver_next(). Errors: EM_PEER when the address cannot be had, EM_TOO_MANY_OPEN, EM_IO. */
em_status evermap_listen(const char *address, evermap_receiver **receiver);

/** Writes where it listens, with the port that it got, into a buffer that must have room for all of it:
 * else EM_INVALID_ARGUMENT, and the message says how much it takes. 300 bytes are enough. Errors: EM_CLOSED, EM_FORKED. */
em_status evermap_receiver_address(const evermap_receiver *receiver, char *buffer, size_t size);

/** Receives one file as evermap_receive() does, and goes on listening, whatever became of it. Errors: as
 * evermap_receive(); EM_CLOSED, EM_FORKED; EM_BUSY while another thread receives with this receiver. */
em_status evermap_receiver_next(evermap_receiver *receiver, const char *target,
                                const em_transfer_options *options, em_transfer_report *report);

/** Listens no more, and takes a UNIX socket's name away. Errors: EM_CLOSED, EM_FORKED; EM_BUSY while a thread
 * receives with it. */
em_status evermap_receiver_close(evermap_receiver *receiver);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_TRANSFER_H */
