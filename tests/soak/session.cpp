// One connection: its operations, and the checks of each of them.
// SPDX-License-Identifier: BSL-1.0
#include "session.hpp"

#include <dat/descriptor.hpp>
#include <dat/try.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace soak {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t no_slot = 0xff;
constexpr std::size_t places(std::size_t buffer, std::size_t slot) { return buffer | slot << 8; }
constexpr std::size_t buffer_of(const book::entry& e) { return e.slot & 0xff; }
constexpr std::size_t slot_of(const book::entry& e) { return e.slot >> 8; }

} // namespace

session::session(process& owner, lane& where, life& counts, const plan& agreed, bool client, random seed)
    : owner_(&owner),
      lane_(&where),
      mine_(&counts.sides[client ? 0 : 1]),
      plan_(agreed),
      client_(client),
      random_(seed),
      book_(agreed.life, *mine_),
      memory_(size),
      began_(clock::now()),
      moved_(began_),
      pinged_(began_) {
  mine_->pid = static_cast<std::uint64_t>(getpid());
  mine_->state = static_cast<std::uint64_t>(outcome::open);
  for (std::size_t i = 0; i < largest_message; ++i) memory_[constant_at + i] = pattern(plan_.life, i);
}

session::~session() {
  if (mine_->state == static_cast<std::uint64_t>(outcome::open)) leave();
}

dat::expected<void> session::open(dat::pz& pz, dat::ep<dat::rc> endpoint, shared_buffers* shared) {
  ep_ = std::move(endpoint);
  shared_ = shared;
  if (shared_) ++shared_->endpoints;
  DAT_TRYV(ep_.set_context(this));
  DAT_TRY(region_, pz.register_memory(memory_, all_rights));
  if (plan_.windows && !client_) {
    DAT_TRY(rmr_, pz.create_rmr_for_ep());
  }
  if (!shared_)
    for (std::size_t i = 0; i < receives; ++i)
      if (!post_receive(i)) return dat::error(dat::return_type::insufficient_resources).at("soak");
  return dat::success();
}

dat::expected<void> session::connect(const dat::ia_address& peer, dat::conn_qual port, dat::timeout limit) {
  DAT_TRYV(ep_.connect(peer, port, limit, std::as_bytes(std::span(&plan_, 1))));
  pending_ = true;
  attempt_limit_ = limit;
  return dat::success();
}

dat::expected<void> session::accept(dat::connection_request& request) {
  DAT_TRYV(request.accept(ep_, area().to_wire()));
  pending_ = true;
  attempt_limit_ = ep_.attributes().accept_timeout;
  return dat::success();
}

dat::expected<void> session::connect(const dat::ib::descriptor& peer, const remote_bytes& area) {
  theirs_ = area;
  silent_end_ = true;
  DAT_TRYV(ep_.connect(peer));
  pending_ = true;
  attempt_limit_ = 1s;
  return dat::success();
}

remote_bytes session::area() const noexcept { return region_.remote(area_at, size - area_at).value(); }

template <class D>
bool session::post(operation kind, std::size_t where, D what) {
  const auto cookie = book_.begin(kind, where);
  const auto posted = ep_.post(what.cookie(cookie));
  if (posted) return true;
  book_.refuse();
  if (posted.error().type() != dat::return_type::invalid_state)
    fault("a post was refused: " + posted.error().message());
  return false;
}

bool session::post_receive(std::size_t buffer) {
  if (ended_ || leaving_) return false;
  return post(operation::receive, places(buffer, no_slot),
              dat::recv{region_.slice(in_at + buffer * largest_message, largest_message).value()});
}

std::size_t session::free_out_buffer() const noexcept {
  return static_cast<std::size_t>(std::find(std::begin(out_busy_), std::end(out_busy_), false) - out_busy_);
}

bool session::send(message_kind kind, std::size_t at, std::span<const std::byte> content) {
  const auto buffer = free_out_buffer();
  if (buffer == out_buffers || !up_ || ending_ || ended_) return false;
  const auto room = piece(out_at + buffer * largest_message);
  const message_header header{plan_.life, out_number_, kind, static_cast<std::uint32_t>(at), 0, 0, 0};
  const auto bytes = content.empty() ? below(random_, below(random_, 4) == 0 ? largest_payload : 200) : content.size();
  auto length = write_message(room, header, bytes, random_);
  if (!content.empty()) {
    std::copy(content.begin(), content.end(), room.begin() + sizeof(message_header));
    message_header whole;
    std::memcpy(&whole, room.data(), sizeof whole);
    whole.sum = sum_of(room.first(length));
    std::memcpy(room.data(), &whole, sizeof whole);
  }
  ++mine_->numbered; // counted before the post, because a peer may have the message at once
  const auto part = region_.slice(out_at + buffer * largest_message, length).value();
  const auto where = places(buffer, client_ ? at : no_slot);
  const bool posted = open_window_ && client_ && plan_.windows
                          ? post(operation::send, where, dat::send_with_invalidate{part, *open_window_})
                          : post(operation::send, where, dat::send{part});
  if (!posted) {
    --mine_->numbered;
    return false;
  }
  out_busy_[buffer] = true;
  ++out_number_;
  return true;
}

bool session::write_with_notice(std::size_t at) {
  const auto buffer = free_out_buffer();
  const message_header header{plan_.life, out_number_, message_kind::request, static_cast<std::uint32_t>(at), 0, 0, 0};
  const auto length =
      write_message(piece(out_at + buffer * largest_message), header, below(random_, largest_payload), random_);
  const auto part = region_.slice(out_at + buffer * largest_message, length).value();
  const auto there = theirs_.slice(at * largest_message, length);
  if (!there) return fault(there.error().message()), false;
  ++mine_->numbered;
  if (!post(operation::write, places(buffer, at),
            dat::rdma_write{part, there.value()}.immediate(static_cast<std::uint32_t>(at)))) {
    --mine_->numbered;
    return false;
  }
  out_busy_[buffer] = true;
  ++out_number_;
  return true;
}

bool session::write_through_window(std::size_t at) {
  const auto buffer = free_out_buffer();
  const message_header header{plan_.life, out_number_, message_kind::request, static_cast<std::uint32_t>(at), 0, 0, 0};
  const auto length =
      write_message(piece(out_at + buffer * largest_message), header, below(random_, largest_payload), random_);
  const auto part = region_.slice(out_at + buffer * largest_message, length).value();
  const auto there = open_window_->slice(0, length);
  if (!there) return fault(there.error().message()), false;
  ++mine_->numbered;
  if (!post(operation::write, places(buffer, at), dat::rdma_write{part, there.value()})) {
    --mine_->numbered;
    return false;
  }
  out_busy_[buffer] = true;
  ++out_number_;
  slots_[at].awaited = 3;
  const bool sent = send(message_kind::request, at); // closes the window behind the write
  open_window_.reset();
  return sent;
}

void session::start_operation(std::size_t at) {
  slot& s = slots_[at];
  if (plan_.windows) {
    if (open_window_ && write_through_window(at)) ++started_;
    return;
  }
  const auto buffer = free_out_buffer();
  if (buffer == out_buffers) return;
  const auto begin = out_at + buffer * largest_message;
  const auto choice = below(random_, 10);
  bool posted = false;
  if (choice >= 7) std::ranges::fill(piece(begin), untouched);
  if (choice < 4) {
    s = {2, operation::send};
    posted = send(message_kind::request, at);
  } else if (choice < 7) {
    s = {2, operation::write};
    posted = write_with_notice(at);
  } else if (choice < 9) {
    s = {1, operation::read};
    posted = post(operation::read, places(buffer, at),
                  dat::rdma_read{region_.slice(begin, largest_message).value(),
                                 theirs_.slice(constant_at - area_at, largest_message).value()});
    if (posted) out_busy_[buffer] = true;
  } else {
    s = {1, operation::atomic, added_};
    const auto old = region_.whole().as<std::uint64_t>(begin, 1).value().word().value();
    const auto there = theirs_.as<std::uint64_t>(words_at - area_at, 1).value().word().value();
    posted = post(operation::atomic, places(buffer, at), dat::ib::fetch_and_add{old, there, 1});
    if (posted) out_busy_[buffer] = true, ++added_;
  }
  if (posted)
    ++started_;
  else
    s = {};
}

void session::fill() {
  for (std::size_t at = 0; at < window && up_ && !ending_ && !ended_ && started_ < plan_.total; ++at)
    if (slots_[at].awaited == 0) start_operation(at);
}

void session::step_done(std::size_t at) {
  if (at >= window || slots_[at].awaited == 0) return fault("an answer or a completion that no operation awaits");
  if (--slots_[at].awaited != 0) return;
  ++finished_;
  if (finished_ == plan_.total)
    begin_end(ending::client_graceful);
  else if (finished_ == plan_.cut && plan_.how != ending::client_graceful && plan_.how <= ending::client_early)
    begin_end(plan_.how);
}

void session::on(const dat::established& up) {
  if (up_ || ended_) return fault("a second event of the attempt");
  up_ = true;
  moved_ = clock::now();
  if (client_ && !silent_end_) {
    auto area = remote_bytes::from_wire(up.private_data());
    if (!area) return fault("the server's answer: " + area.error().message());
    theirs_ = area.value();
  }
  if (client_)
    fill();
  else if (plan_.windows && !bind_window())
    begin_end(ending::server_cuts);
}

bool session::bind_window() {
  const auto cookie = book_.begin(operation::bind, places(0, no_slot));
  const auto bound = rmr_.bind(ep_, dat::bind{region_, area_at, largest_message, dat::remote_write}.cookie(cookie));
  if (!bound) {
    book_.refuse();
    if (bound.error().type() != dat::return_type::invalid_state)
      fault("a bind was refused: " + bound.error().message());
    return false;
  }
  binding_ = true;
  const auto wire = bound.value().to_wire();
  return send(message_kind::window, 0, wire);
}

void session::on_bound(const dat::bind_done& done) {
  const char* why = nullptr;
  if (!book_.end(done.cookie(), true, 0, why)) return fault(why);
  if (!done.is_of(rmr_)) fault("a bind of another window");
  binding_ = false;
  if (std::exchange(window_due_, false)) bind_window();
}

void session::check_written(std::size_t at) {
  if (at >= window) return fault("immediate data that no client sends");
  message_header header;
  if (const char* why = read_message(piece(area_at + at * largest_message), 0, plan_.life, header))
    return fault(std::string("written data ") + why);
  if (header.number != in_number_)
    return fault("written message " + std::to_string(header.number) + " in place of " + std::to_string(in_number_));
  ++in_number_;
  ++mine_->arrived;
}

void session::on_received(dat::cookie cookie, std::size_t bytes, std::optional<std::uint32_t> immediate,
                          std::optional<std::uint32_t> invalidated) {
  moved_ = clock::now();
  std::size_t buffer = 0;
  if (shared_) {
    buffer = cookie.as<std::size_t>();
    if (buffer >= shared_->posted.size() || !shared_->posted[buffer])
      return fault("a second completion of a shared buffer");
    shared_->posted[buffer] = false;
    ++mine_->accepted[static_cast<std::size_t>(operation::receive)];
    ++mine_->done[static_cast<std::size_t>(operation::receive)];
    mine_->bytes += bytes;
  } else {
    const char* why = nullptr;
    const auto* e = book_.end(cookie, true, bytes, why);
    if (!e) return fault(why);
    buffer = buffer_of(*e);
  }
  const auto room = shared_ ? shared_->at(buffer) : piece(in_at + buffer * largest_message);
  message_header header;
  if (immediate) {
    check_written(*immediate);
    header.kind = message_kind::request;
    header.slot = *immediate;
  } else {
    if (invalidated) {
      if (!rmr_.is(*invalidated)) fault("a message has invalidated another window");
      check_written(0);
    }
    if (const char* why = read_message(room, bytes, plan_.life, header)) return fault(std::string("a message ") + why);
    if (header.number + 1 == in_number_) return message_again(buffer);
    if (header.number != in_number_)
      return fault("message " + std::to_string(header.number) + " in place of " + std::to_string(in_number_));
    ++in_number_;
    ++mine_->arrived;
  }
  if (client_) client_message(header, room.subspan(sizeof header, immediate ? 0 : header.bytes));
  free_buffer(buffer);
  if (!client_) server_message(header);
}

void session::free_buffer(std::size_t buffer) {
  if (shared_) {
    if (auto again = shared_->post(buffer); !again) fault("a shared buffer was refused: " + again.error().message());
  } else if (!ended_) {
    post_receive(buffer);
  }
}

/// Soft-RoCE may send a message again as a new one, see docs/lab.md. The repeated message has no effect here, and is
/// counted. The book reports a receive that dat completed twice as a fault.
void session::message_again(std::size_t buffer) {
  ++mine_->repeated;
  free_buffer(buffer);
}

void session::server_message(const message_header& header) {
  if (header.kind != message_kind::request) return fault("the client sent no request");
  answers_.push_back(header.slot);
  while (!answers_.empty() && send(message_kind::answer, answers_.front())) answers_.pop_front();
  // The message may come before the completion of the bind whose window it has closed.
  if (plan_.windows && binding_)
    window_due_ = true;
  else if (plan_.windows)
    bind_window();
  if (plan_.how >= ending::server_graceful && in_number_ >= plan_.cut) begin_end(plan_.how);
}

void session::client_message(const message_header& header, std::span<const std::byte> payload) {
  if (header.kind == message_kind::answer) {
    step_done(header.slot);
  } else if (header.kind == message_kind::window) {
    auto opened = window_bytes::from_wire(payload);
    if (!opened) return fault("the window: " + opened.error().message());
    open_window_ = opened.value();
  }
  fill();
}

/// Soft-RoCE completes a read or an atomic whose response was lost when it gets a plain acknowledgement of the same
/// number, for example of a message that was sent twice. The rest of the sink is untouched then. Any other data is a
/// fault.
void session::check_fetched(operation kind, std::size_t buffer, std::size_t at) {
  const auto all =
      piece(out_at + buffer * largest_message, kind == operation::read ? largest_message : sizeof(std::uint64_t));
  std::size_t good = 0;
  std::uint64_t expected = slots_[at].before;
  if (kind == operation::read) {
    while (good < all.size() && all[good] == pattern(plan_.life, good)) ++good;
  } else if (std::memcmp(all.data(), &expected, sizeof expected) == 0) {
    good = all.size();
  }
  if (good == all.size()) return;
  if (std::all_of(all.begin() + static_cast<std::ptrdiff_t>(good), all.end(),
                  [](std::byte b) { return b == untouched; })) {
    ++mine_->unanswered;
    return;
  }
  std::uint64_t found = 0;
  std::memcpy(&found, all.data(), sizeof found);
  fault(kind == operation::read
            ? "a read brought other data than the peer has, from byte " + std::to_string(good)
            : "an atomic found " + std::to_string(found) + " in place of " + std::to_string(expected));
}

void session::on_done(const dat::transfer& done) {
  moved_ = clock::now();
  const char* why = nullptr;
  const auto* e = book_.end(done.cookie(), true, done.bytes(), why);
  if (!e) return fault(why);
  const auto buffer = buffer_of(*e);
  const auto at = slot_of(*e);
  const auto kind = e->kind;
  out_busy_[buffer] = false;
  if (client_ && plan_.windows)
    // The peer counts a write through a window together with the message behind it, when that message arrives.
    mine_->acknowledged += kind == operation::send ? 2 : 0;
  else if (kind == operation::send || kind == operation::write)
    ++mine_->acknowledged;
  if (kind == operation::read || kind == operation::atomic) check_fetched(kind, buffer, at);
  if (client_) {
    step_done(at);
    fill();
  } else {
    while (!answers_.empty() && send(message_kind::answer, answers_.front())) answers_.pop_front();
  }
}

void session::on(const dat::dto_failure& failed) {
  if (shared_ && failed.operation() == dat::dto_operation::recv) {
    const auto buffer = failed.cookie().as<std::size_t>();
    if (buffer >= shared_->posted.size() || !shared_->posted[buffer])
      return fault("a second completion of a shared buffer");
    if (auto again = shared_->post(buffer); !again) fault("a shared buffer was refused: " + again.error().message());
    return;
  }
  const char* why = nullptr;
  const auto* e = book_.end(failed.cookie(), false, 0, why);
  if (!e) return fault(why);
  if (e->kind != operation::receive) out_busy_[buffer_of(*e)] = false;
}

} // namespace soak
