// Datagrams: a client sends requests, and a server answers. The wire may lose and repeat messages, but the adapter may
// lose or repeat no completion.
// SPDX-License-Identifier: BSL-1.0
#include "book.hpp"
#include "lanes.hpp"

#include <dat/try.hpp>
#include <dat/ud.hpp>

#include <unistd.h>

#include <memory>
#include <optional>
#include <vector>

namespace soak {

namespace {

using namespace std::chrono_literals;

constexpr auto ud_streams =
    dat::stream::dto | dat::stream::connection | dat::stream::connection_requests | dat::stream::datagrams;
constexpr std::size_t message_size = 256;
constexpr std::size_t receive_size = dat::ib::grh::size + message_size;
constexpr std::size_t ud_receives = 32;
constexpr std::size_t sends = 16;

/// A datagram endpoint with its memory and its book, from its creation to its last completion.
struct node {
  node(process& of, lane& where, life& place, bool client)
      : owner(&of), in(&where), id(place.id), mine(&place.sides[client ? 0 : 1]), all(id, *mine) {
    mine->pid = static_cast<std::uint64_t>(getpid());
    mine->state = static_cast<std::uint64_t>(outcome::open);
  }

  dat::expected<void> open(dat::pz& pz, const dat::evd<ud_streams>& evd) {
    DAT_TRY(region, pz.register_memory(memory, dat::local_read | dat::local_write));
    DAT_TRY(ep, pz.create_ep<dat::ud>(evd));
    for (std::size_t i = 0; i < ud_receives; ++i) DAT_TRYV(receive(i));
    return dat::success();
  }
  dat::expected<void> receive(std::size_t buffer) {
    DAT_TRY(const auto part, region.slice(buffer * receive_size, receive_size));
    const auto posted = ep.post(dat::recv{part}.cookie(all.begin(operation::receive, buffer)));
    if (!posted) all.refuse();
    return posted;
  }
  /// Sends a message, if a buffer is free.
  void send(const dat::ib::address_handle& to, std::uint64_t life, std::uint64_t number, message_kind kind,
            random& from) {
    std::size_t buffer = 0;
    while (buffer < sends && busy[buffer]) ++buffer;
    if (buffer == sends) return; // datagrams may be lost, here as well as on the wire
    const auto at = ud_receives * receive_size + buffer * message_size;
    const auto bytes = below(from, message_size - sizeof(message_header));
    const auto length =
        write_message(std::span(memory).subspan(at, message_size), {life, number, kind, 0, 0, 0, 0}, bytes, from);
    const auto part = region.slice(at, length).value();
    const auto posted = ep.post(dat::ib::send_to{part, to}.cookie(all.begin(operation::datagram, buffer)));
    busy[buffer] = static_cast<bool>(posted);
    if (posted) return;
    all.refuse();
    if (posted.error().type() != dat::return_type::invalid_state)
      fault("a datagram was refused: " + posted.error().message());
  }
  void fault(const std::string& what) { owner->violation(*in, id, what); }

  void on_done(dat::cookie cookie, bool good, std::size_t bytes) {
    const char* why = nullptr;
    const auto* e = all.end(cookie, good, bytes, why);
    if (!e) return fault(why);
    if (e->kind == operation::datagram) busy[e->slot] = false;
  }
  /// The message that has arrived, if it is complete. Its buffer is posted again.
  std::optional<message_header> on_received(const dat::ib::datagram_recv_done& got) {
    const char* why = nullptr;
    const auto* e = all.end(got.cookie(), true, got.bytes(), why);
    if (!e) return fault(why), std::nullopt;
    const auto buffer = e->slot;
    const auto place = std::span(memory).subspan(buffer * receive_size, receive_size);
    const dat::ib::datagram_view view(got, std::as_bytes(place));
    message_header header;
    std::memcpy(&header, view.payload().data(), std::min(sizeof header, view.payload().size()));
    // The number of the life cannot be checked here: a message of an earlier endpoint may still be on its way.
    if ((why = read_message(view.payload(), view.payload().size(), header.life, header)))
      return fault(std::string("a datagram ") + why), std::nullopt;
    if (!ended)
      if (auto again = receive(buffer); !again && again.error().type() != dat::return_type::invalid_state)
        fault("a receive was refused: " + again.error().message());
    return header;
  }
  void on_end() {
    if (ended) return fault("a second terminal event");
    ended = true;
    ended_at = clock::now();
  }
  void end() {
    if (!ending && ep.disconnect()) ending = true;
  }
  bool over() {
    if (!ended) return false;
    if (all.outstanding() != 0 && clock::now() - ended_at > patience)
      fault(std::to_string(all.outstanding()) + " operations of a datagram endpoint were not flushed"), all.drop();
    if (all.outstanding() != 0) return false;
    mine->state = static_cast<std::uint64_t>(outcome::drained);
    return true;
  }
  void leave() {
    (void)ep.close(); // the call has no effect on an endpoint that was never created
    all.drop();
    mine->state = static_cast<std::uint64_t>(outcome::left);
  }

  process* owner;
  lane* in;
  std::uint64_t id;
  side* mine;
  book all;
  std::vector<std::byte> memory = std::vector<std::byte>(ud_receives * receive_size + sends * message_size);
  dat::lmr<std::byte, (dat::local_read | dat::local_write).value> region{};
  dat::ep<dat::ud> ep{};
  bool busy[sends]{};
  bool ending = false;
  bool ended = false;
  clock::time_point ended_at{};
};

class ud_lane {
public:
  ud_lane(process& owner, dat::ia& ia, lane& where)
      : owner_(owner), ia_(ia), lane_(where), random_(owner.generator(where)) {}

  void run() {
    if (auto ok = open(); !ok) return owner_.violation(lane_, 0, ok.error().message());
    while (!owner_.leaving()) {
      lane_.idle = owner_.now() == phase::rest && !node_;
      if (lane_.idle && lane_.client) {
        owner_.pause(1s);
        continue;
      }
      if (!node_ && owner_.now() == phase::work) begin();
      turn(lane_.idle ? 1s : 200ms);
    }
    if (node_) node_->leave();
    node_.reset();
    lane_.idle = true;
  }

private:
  dat::expected<void> open() {
    DAT_TRY(pz_, ia_.create_pz());
    DAT_TRY(evd_, ia_.create_evd<ud_streams>(64));
    if (lane_.client) return dat::success();
    const auto port = dat::conn_qual::make(owner_.port(lane_)).value();
    for (const auto until = clock::now() + patience;;) {
      auto made = dat::ib::datagram_service::listen(ia_, port, evd_);
      if (made) {
        service_ = std::move(made.value());
        return dat::success();
      }
      if (clock::now() > until || owner_.leaving()) return made.error();
      owner_.pause(100ms);
    }
  }

  void begin() {
    auto* const place = owner_.counts().begin(lane_.service);
    if (!place) return owner_.pause(50ms);
    node_ = std::make_unique<node>(owner_, lane_, *place, lane_.client);
    peer_.reset();
    heard_ = asked_ = clock::now();
    number_ = 0;
    wanted_ = 10 + below(random_, 40);
    auto ok = node_->open(pz_, evd_);
    if (ok && lane_.client)
      ok = node_->ep.connect(owner_.peer(), dat::conn_qual::make(owner_.port(lane_)).value(), 10s);
    if (ok) return;
    node_->leave();
    node_.reset();
    ++lane_.ends;
    owner_.pause(50ms);
  }

  void turn(dat::timeout limit) {
    (void)evd_.wait_and_drain(dat::overloaded{
                                  [&](const dat::ib::datagram_recv_done& e) { received(e); },
                                  [&](const dat::ib::datagram_send_done& e) {
                                    if (ours(e)) node_->on_done(e.cookie(), true, e.bytes());
                                  },
                                  [&](const dat::dto_failure& e) {
                                    if (ours(e)) node_->on_done(e.cookie(), false, 0);
                                  },
                                  [&](dat::ib::datagram_request& e) {
                                    if (node_ && !node_->ending)
                                      (void)e.accept(node_->ep); // otherwise its destructor rejects the request
                                  },
                                  [&](const dat::ib::datagram_established& e) {
                                    if (!ours(e)) return;
                                    if (auto to = e.peer()) peer_ = std::move(to.value());
                                    if (lane_.client) ask();
                                  },
                                  [&](const dat::disconnected& e) {
                                    if (ours(e)) node_->on_end();
                                  },
                                  [&](const dat::connection_broken& e) {
                                    if (ours(e)) node_->on_end();
                                  },
                                  [&](const dat::peer_rejected& e) { refused(e); },
                                  [&](const dat::non_peer_rejected& e) { refused(e); },
                                  [&](const dat::connection_unreachable& e) { refused(e); },
                                  [&](const dat::connection_timed_out& e) { refused(e); },
                                  [](const auto&) {},
                              },
                              limit);
    if (!node_) return;
    const auto now = clock::now();
    if (lane_.client) {
      if (peer_ && !node_->ending && now - asked_ > 500ms) ask(); // the message was lost, so the client sends it again
      if (now - heard_ > 15s) node_->end();
    } else if (owner_.now() == phase::rest && now - heard_ > 2s) {
      node_->end();
    }
    if (!node_->over()) return;
    ++(number_ >= wanted_ ? lane_.lives : lane_.ends);
    peer_.reset();
    node_.reset();
  }

  template <class E>
  [[nodiscard]] bool ours(const E& event) const {
    return node_ && event.ep() == dat::ep_ref(node_->ep);
  }
  template <class E>
  void refused(const E& event) {
    if (ours(event) && lane_.client) node_->end();
  }
  void ask() {
    if (!node_ || !peer_ || node_->ending) return;
    asked_ = clock::now();
    node_->send(*peer_, node_->id, number_, message_kind::request, random_);
  }
  void received(const dat::ib::datagram_recv_done& e) {
    if (!ours(e)) return;
    const auto message = node_->on_received(e);
    if (!message) return;
    if (lane_.client) {
      if (message->life != node_->id || message->number != number_) return; // the answer is a repeated one
      heard_ = clock::now();
      if (++number_ < wanted_)
        ask();
      else
        node_->end();
    } else if (message->kind == message_kind::request && peer_) {
      heard_ = clock::now();
      node_->send(*peer_, message->life, message->number, message_kind::answer, random_);
    }
  }

  process& owner_;
  dat::ia& ia_;
  lane& lane_;
  random random_;
  dat::pz pz_{};
  dat::evd<ud_streams> evd_{};
  dat::ib::datagram_service service_{};
  std::unique_ptr<node> node_{};
  std::optional<dat::ib::address_handle> peer_{};
  std::uint64_t number_ = 0;
  std::uint64_t wanted_ = 0;
  clock::time_point heard_{};
  clock::time_point asked_{};
};

} // namespace

void datagrams(process& owner, dat::ia& ia, lane& where) { ud_lane(owner, ia, where).run(); }

} // namespace soak
