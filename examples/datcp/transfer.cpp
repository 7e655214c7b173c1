// Copying a tree: what the sender and the receiver do for each entry.
// SPDX-License-Identifier: BSL-1.0
//
//   sender                         receiver
//   total
//   entry                  ->
//                          <-      answer: go on | have it | failed
//   begin, blocks ...      ->
//                          <-      credits ...
//   done                   ->
//                          <-      stored
//   ... next entry ...
//   finished               ->
//                          <-      finished
//
// Every message of the sender but `total` and `begin` waits for its answer, so neither side can flood the other.
#include "transfer.hpp"

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <utility>
#include <vector>

namespace datcp {

namespace {

[[nodiscard]] std::string not_read(const std::string& why) { return "cannot be read: " + why; }
[[nodiscard]] std::string not_stored(const std::string& why) { return "cannot be stored: " + why; }

} // namespace

destination destination::choose(const tree& from, const std::string& path, bool must_be_directory) {
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const std::string target = path.empty() ? "." : path;
  const auto there = from.status(target);
  if (there && S_ISDIR(there->st_mode)) return {tree::confined_to(from.open(target, flags)), {}};
  if (must_be_directory || target.ends_with('/')) throw file_error(there ? "not a directory" : "no such directory");
  const auto [directory, name] = split(target);
  return {tree::confined_to(from.open(directory, flags)), name};
}

std::string destination::place(const std::string& path) const {
  // The peer chose this path. The kernel keeps it inside `base`; unusual spellings are refused here.
  for (std::size_t from = 0; from <= path.size();) {
    const auto to = std::min(path.find('/', from), path.size());
    const auto part = std::string_view(path).substr(from, to - from);
    if (part.empty() || part == ".." || (part == "." && from > 0) || part.find('\0') != part.npos)
      throw protocol_error("a path is not in order");
    from = to + 1;
  }
  const auto slash = std::min(path.find('/'), path.size());
  if (!rename.empty()) return rename + path.substr(slash);
  return path.starts_with("./") ? path.substr(2) : path;
}

// --- sending ------------------------------------------------------------------------------------------------------

namespace {

/// Whether the file begins with `part` bytes of this checksum; `running` then has the checksum over them.
bool begins_with(int file, std::uint64_t part, const checksum& sum, hasher& running) {
  try {
    if (hash_file(file, part, running) == part && running.sum() == sum) return true;
  } catch (const file_error&) {
    // Sending the file from its beginning reports the error.
  }
  running.reset();
  return false;
}

/// Sends the blocks of a file and `done`; returns the receiver's result.
stored send_file(channel& to, const found& file, const answer& known, observer& watcher) {
  const entry& what = file.what;
  hasher running;
  std::uint64_t at = 0;
  done end{.ok = true};
  try {
    if (known.part > 0 && begins_with(file.file.get(), known.part, known.sum, running)) at = known.part;
    to.send(begin{at});
    watcher.moved(what.path, at, true);
    // Before `done`, the receiver sends a message only when it cannot continue.
    while (at < what.size && !to.message_waiting()) {
      // The next block is read while the adapter writes the previous ones.
      const auto room = to.next_block();
      const auto piece = room.first(std::min<std::uint64_t>(room.size(), what.size - at));
      const auto got = read_at(file.file.get(), at, piece);
      if (got < piece.size()) throw file_error("became shorter while it was copied");
      running.update(piece);
      to.write_block(got);
      at += got;
      watcher.moved(what.path, got);
    }
  } catch (const file_error& e) {
    end = {.ok = false, .text = e.what()};
  }
  end.sum = running.sum();
  to.send(end);
  return to.receive<stored>();
}

/// Sends one entry; returns whether the receiver has it.
bool send_entry(channel& to, const found& next, observer& watcher) {
  const entry& what = next.what;
  const auto problem = [&](const std::string& why) { return watcher.problem(what.path, why), false; };
  to.send(what);
  const auto got = to.receive<answer>();
  if (what.what == entry::kind::unreadable) return problem(not_read(what.text));
  if (got.what == answer::kind::failed) return problem(not_stored(got.text));
  if (got.what == answer::kind::have) return watcher.skipped(what), true;
  checksum sum{};
  if (what.what == entry::kind::file) {
    const auto verdict = send_file(to, next, got, watcher);
    if (!verdict.ok) return problem(not_stored(verdict.text));
    sum = verdict.sum;
  }
  return watcher.copied(what, sum), true;
}

} // namespace

void send_tree(channel& to, const tree& from, const std::string& path, bool recursive, observer& watcher) {
  total all;
  walk(from, path, recursive, [&](const found& f) { all.bytes += f.what.size; });
  to.send(all);
  watcher.expect(all.bytes);
  std::string failed; // the receiver could not create the directory, so its contents are skipped
  walk(from, path, recursive, [&](const found& f) {
    if (!failed.empty() && f.what.path.starts_with(failed)) return;
    if (!send_entry(to, f, watcher) && f.what.what == entry::kind::directory) failed = f.what.path + "/";
  });
  to.send(finished{});
  if (const auto end = to.receive<finished>(); !end.text.empty()) watcher.problem(path, not_stored(end.text));
}

// --- receiving ----------------------------------------------------------------------------------------------------

namespace {

/// Receives blocks until `done`. After a failure the receiver continues to receive blocks and discards them: the sender
/// may have written some before it got the failure.
void receive_file(channel& from, part_file& part, const entry& what, bool resume, observer& watcher) {
  std::optional<std::string> failure;
  const auto fail = [&](const std::string& why) {
    if (failure) return;
    failure = why;
    // With --resume the data that has arrived is kept, so that a copy can continue, for example after the disk was
    // full. The checksum detects wrong data.
    if (!resume) part.discard();
    from.send(stored{.ok = false, .text = why});
  };

  const auto start = from.receive<begin>();
  try {
    if (start.offset != part.size()) {
      if (start.offset != 0) throw protocol_error("the peer begins in the middle of a file");
      part.start_over();
    }
    watcher.moved(what.path, part.size(), true);
  } catch (const file_error& e) {
    fail(e.what());
  }
  done end;
  for (;;) {
    auto next = from.receive_any();
    if (auto* m = std::get_if<message>(&next)) {
      end = channel::expect<done>(std::move(*m));
      break;
    }
    const auto data = std::get<block>(next).data;
    try {
      if (!failure) part.append(data);
      watcher.moved(what.path, data.size());
    } catch (const file_error& e) {
      fail(e.what());
    }
    from.release_block(); // only now, because the peer must not overwrite the block before
  }
  try {
    if (!failure) {
      if (!end.ok) throw file_error(end.text);
      if (part.size() != what.size) throw file_error("ended too early");
      if (part.sum() != end.sum) throw file_error("the checksums of the two sides differ");
      part.commit();
      from.send(stored{.ok = true, .sum = part.sum()});
      return watcher.copied(what, end.sum);
    }
  } catch (const file_error& e) {
    fail(e.what());
  }
  watcher.problem(what.path, not_stored(*failure));
}

/// Answers one entry; returns true for a directory that is finished later.
bool receive_entry(channel& from, const destination& to, const entry& what, bool resume, observer& watcher) {
  const auto path = to.place(what.path);
  std::optional<part_file> part;
  answer reply;
  try {
    switch (what.what) {
    case entry::kind::directory:
      make_directory(to.base, path, what);
      break;
    case entry::kind::symlink:
      make_symlink(to.base, path, what.text);
      break;
    case entry::kind::file:
      part.emplace(to.base, path, what, resume);
      if (part->complete())
        reply.what = answer::kind::have;
      else
        reply.part = part->size(), reply.sum = part->sum();
      break;
    case entry::kind::unreadable:
      from.send(reply);
      watcher.problem(what.path, not_read(what.text));
      return false;
    default:
      throw protocol_error("an entry of an unknown kind");
    }
  } catch (const file_error& e) {
    from.send(answer{.what = answer::kind::failed, .text = e.what()});
    watcher.problem(what.path, not_stored(e.what()));
    return false;
  }
  from.send(reply);
  if (reply.what == answer::kind::have)
    watcher.skipped(what);
  else if (part)
    receive_file(from, *part, what, resume, watcher);
  else
    watcher.copied(what, {});
  return what.what == entry::kind::directory;
}

} // namespace

void receive_tree(channel& from, const destination& to, bool resume, observer& watcher) {
  watcher.expect(from.receive<total>().bytes);
  std::vector<entry> directories;
  for (;;) {
    auto next = from.receive();
    if (std::holds_alternative<finished>(next)) break;
    auto what = channel::expect<entry>(std::move(next));
    if (receive_entry(from, to, what, resume, watcher)) directories.push_back(std::move(what));
  }
  // Finishes directories last, because a new entry changes the time of its directory and needs the right to write.
  // Inner directories come first.
  finished end;
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
    try {
      finish_directory(to.base, to.place(it->path), *it);
    } catch (const file_error& e) {
      end.text = e.what();
      watcher.problem(it->path, not_stored(e.what()));
    }
  }
  from.send(end);
}

} // namespace datcp
