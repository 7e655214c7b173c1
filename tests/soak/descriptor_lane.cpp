// Connections without a connection manager: descriptors go through a mailbox of the board.
// SPDX-License-Identifier: BSL-1.0
#include "lanes.hpp"
#include "rc_lane.hpp"

#include <dat/descriptor.hpp>
#include <dat/try.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <memory>

namespace soak {

namespace {

using namespace std::chrono_literals;

/// The data that a side puts into the mailbox.
struct introduction {
  dat::ib::descriptor::wire endpoint{};
  remote_bytes::wire area{};
  plan agreed{};
};
using words = std::array<std::uint64_t, board::mailbox_words>;
static_assert(sizeof(introduction) <= sizeof(words));

void put(word (&box)[board::mailbox_words], const introduction& what) {
  words all{};
  std::memcpy(all.data(), &what, sizeof what);
  for (std::size_t i = 0; i < all.size(); ++i) box[i] = all[i];
}
introduction take(const word (&box)[board::mailbox_words]) {
  words all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = box[i];
  introduction what;
  std::memcpy(static_cast<void*>(&what), all.data(), sizeof what);
  return what;
}

class descriptor_lane {
public:
  descriptor_lane(process& owner, dat::ia& ia, lane& where)
      : owner_(owner),
        ia_(ia),
        lane_(where),
        random_(owner.generator(where)),
        box_(owner.counts().box(where.client ? owner.given().box : 1 - owner.given().box)) {}

  void run() {
    if (auto ok = open(); !ok) return owner_.violation(lane_, 0, ok.error().message());
    last_ = box_.offer; // ignores the offer of an earlier process
    while (!owner_.leaving()) {
      const bool rest = owner_.now() == phase::rest;
      lane_.idle = rest && !session_;
      if (lane_.idle && lane_.client) {
        owner_.pause(1s);
        continue;
      }
      if (!session_ && (!rest || !lane_.client)) lane_.client ? offer() : answer();
      if (session_) follow();
      events_.pump(dispatcher{[](dat::connection_request&) {}}, lane_.idle ? 200ms : 20ms);
      if (session_ && connected_ && session_->over(clock::now())) finish();
    }
    if (session_) session_->leave();
    session_.reset();
    lane_.idle = true;
  }

private:
  dat::expected<void> open() {
    DAT_TRY(pz_, ia_.create_pz());
    return events_.open(ia_);
  }
  [[nodiscard]] dat::ep_attributes attributes() const {
    dat::ep_attributes a;
    a.retry_count = 5;
    return a;
  }
  [[nodiscard]] dat::expected<introduction> begin(life& place, const plan& agreed) {
    DAT_TRY(auto ep, pz_.create_ep<dat::rc>(events_.evds(), attributes()));
    session_ = std::make_unique<session>(owner_, lane_, place, agreed, lane_.client, random(random_()));
    DAT_TRYV(session_->open(pz_, std::move(ep), nullptr));
    DAT_TRY(const auto mine, session_->endpoint().export_descriptor());
    began_ = clock::now();
    connected_ = false;
    return introduction{mine.to_wire(), session_->area().to_wire(), agreed};
  }
  dat::expected<void> connect(const introduction& other) {
    DAT_TRY(const auto peer, dat::ib::descriptor::from_wire(other.endpoint));
    DAT_TRY(const auto area, remote_bytes::from_wire(other.area));
    connected_ = true;
    return session_->connect(peer, area);
  }
  void give_up() {
    if (session_) session_->leave();
    session_.reset();
    ++lane_.ends;
    owner_.pause(50ms);
  }

  void offer() {
    auto* const place = owner_.counts().begin(lane_.service);
    if (!place) return owner_.pause(50ms);
    plan p;
    p.life = place->id;
    p.total = static_cast<std::uint32_t>(20 + below(random_, 100));
    p.cut = static_cast<std::uint32_t>(1 + below(random_, p.total));
    // The server's end would reach the client only by a broken connection, so the client ends these connections.
    p.how = below(random_, 2) == 0 ? ending::client_graceful : static_cast<ending>(below(random_, 4));
    const auto mine = begin(*place, p);
    if (!mine) return give_up();
    put(box_.from_client, mine.value());
    box_.offer = p.life;
  }
  void answer() {
    const std::uint64_t wanted = box_.offer;
    if (wanted == last_) return;
    last_ = wanted;
    const auto other = take(box_.from_client);
    auto* const place = owner_.counts().find(wanted);
    if (!place || other.agreed.life != wanted || place->sides[1].state != 0) return;
    const auto mine = begin(*place, other.agreed);
    if (!mine) return give_up();
    if (auto ok = connect(other); !ok) return give_up();
    put(box_.from_server, mine.value());
    box_.answer = wanted; // from now on, the client may send
  }
  /// Reads the mailbox for the life under way.
  void follow() {
    const auto id = session_->id();
    if (lane_.client) {
      if (connected_) return;
      if (box_.answer == id) {
        if (auto ok = connect(take(box_.from_server)); !ok) give_up();
      } else if (clock::now() - began_ > 5s) {
        box_.over = id;
        give_up();
      }
    } else if (box_.over == id || box_.offer != id) {
      session_->cut();
    }
  }
  void finish() {
    if (lane_.client) box_.over = session_->id();
    ++(session_->successful() ? lane_.lives : lane_.ends);
    session_.reset();
  }

  process& owner_;
  dat::ia& ia_;
  lane& lane_;
  random random_;
  board::mailbox& box_;
  dat::pz pz_{};
  merged_events events_{};
  std::unique_ptr<session> session_{};
  std::uint64_t last_ = 0;
  bool connected_ = false;
  clock::time_point began_{};
};

} // namespace

void descriptors(process& owner, dat::ia& ia, lane& where) { descriptor_lane(owner, ia, where).run(); }

} // namespace soak
