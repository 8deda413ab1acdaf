/**
 * @file
 * Evermap for C++17 and later: persistent heaps in files, in which standard containers live.
 *
 *     evermap::store store = evermap::store::open_or_create("my.store");
 *     evermap::session session = store.write_or_create("words");
 *     using words = evermap::map<evermap::string, evermap::vector<int>>;
 *     auto& index = session.find_or_make_root<words>();
 *     index["first"].push_back(1);        // in the object's memory, at raw speed
 *     session.commit();                   // durable, all of it or nothing
 *
 * and in the next process, without loading, reading only the data that is accessed:
 *
 *     evermap::snapshot snapshot = evermap::store("my.store").read("words");
 *     const words* index = snapshot.root<words>();
 *
 * Header only, over the C library `evermap.h`. Errors are exceptions (`error.hpp`), containers are
 * the standard ones (`containers.hpp`, `allocator.hpp`), the root's type is checked (`type.hpp`),
 * virtual functions work if requested (`polymorphic.hpp`), objects of Rust programs can be read
 * (`rust.hpp`), stores can be audited, copied and moved (`tools.hpp`), files and streams
 * transferred (`transfer.hpp`), and files loaded as memory (`load.hpp`). docs/cpp.md tells which
 * containers work and why.
 */
#ifndef EVERMAP_HPP
#define EVERMAP_HPP

#if __cplusplus < 201703L
#error "evermap.hpp needs C++17"
#endif

#include "evermap/allocator.hpp"
#include "evermap/containers.hpp"
#include "evermap/error.hpp"
#include "evermap/load.hpp"
#include "evermap/polymorphic.hpp"
#include "evermap/rust.hpp"
#include "evermap/shared.hpp"
#include "evermap/store.hpp"
#include "evermap/tools.hpp"
#include "evermap/transfer.hpp"
#include "evermap/type.hpp"

#endif
