// Definitions of rails.hpp: the interface, the memory, and the data on the wire.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/impl/rails_state.hpp>
#include <dat/rails.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <poll.h>
#include <random>

namespace dat { inline namespace v0 {

namespace detail { namespace rail {

inline constexpr std::uint8_t protocol = 1;
inline constexpr std::array magic{std::byte{'d'}, std::byte{'a'}, std::byte{'t'}, std::byte{'r'}};

template <class N>
void put(std::span<std::byte> to, N n) noexcept {
  for (std::size_t i = sizeof(N); i-- > 0; n = static_cast<N>(n >> 8)) to[i] = static_cast<std::byte>(n & 0xff);
}
template <class N>
[[nodiscard]] N get(std::span<const std::byte> from) noexcept {
  N n = 0;
  for (std::size_t i = 0; i < sizeof(N); ++i) n = static_cast<N>(n << 8 | static_cast<N>(from[i]));
  return n;
}

DAT_DECL void control::write(std::span<std::byte> to) const noexcept {
  to[0] = static_cast<std::byte>(kind);
  to[1] = std::byte{rail};
  to[2] = std::byte{protocol};
  to[3] = std::byte{0};
  put(to.subspan(4), life);
  put(to.subspan(8), count);
  put(to.subspan(16), session);
}
DAT_DECL std::optional<control> control::read(std::span<const std::byte> from) noexcept {
  if (from.size() < size || from[2] != std::byte{protocol} || from[0] < std::byte{1} || from[0] > std::byte{3})
    return std::nullopt;
  return control{static_cast<kind_type>(from[0]), static_cast<std::uint8_t>(from[1]),
                 get<std::uint32_t>(from.subspan(4)), get<std::uint64_t>(from.subspan(8)),
                 get<std::uint64_t>(from.subspan(16))};
}

DAT_DECL std::array<std::byte, greeting::size> greeting::bytes() const noexcept {
  std::array<std::byte, size> b{};
  std::copy(magic.begin(), magic.end(), b.begin());
  b[4] = std::byte{protocol};
  b[5] = std::byte{rail};
  b[6] = std::byte{rails};
  put(std::span(b).subspan(8), life);
  put(std::span(b).subspan(12), session);
  return b;
}
DAT_DECL std::optional<greeting> greeting::read(std::span<const std::byte> from) noexcept {
  if (from.size() < size || !std::equal(magic.begin(), magic.end(), from.begin()) || from[4] != std::byte{protocol})
    return std::nullopt;
  return greeting{static_cast<std::uint8_t>(from[5]), static_cast<std::uint8_t>(from[6]),
                  get<std::uint32_t>(from.subspan(8)), get<std::uint64_t>(from.subspan(12))};
}

}} // namespace detail::rail

DAT_DECL std::vector<std::byte> rails_memory::to_wire() const {
  std::vector<std::byte> all;
  if (!regions_) return all;
  for (const region& r : *regions_) {
    const auto one = r.remote().to_wire();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

DAT_DECL expected<rails_remote> rails_remote::from_wire(std::span<const std::byte> bytes) {
  const auto bad = [](const char* hint) {
    return error(return_type::invalid_parameter).at("rails_remote.from_wire", object_kind::rmr).hint(hint);
  };
  const std::size_t n = bytes.size() / segment::wire_size;
  if (n == 0 || n > rails::max_rails || bytes.size() % segment::wire_size != 0)
    return bad("The wire form of rails_memory has 24 bytes for each rail, of 1 to 16 rails.");
  rails_remote made;
  made.segments_ = std::make_unique<std::vector<segment>>();
  for (std::size_t i = 0; i < n; ++i) {
    auto one = segment::from_wire(bytes.subspan(i * segment::wire_size, segment::wire_size));
    if (!one) return one.assume_error();
    made.segments_->push_back(one.assume_value());
    if (one.assume_value().size() != made.segments_->front().size())
      return bad("The segments of all rails must have one length.");
  }
  return made;
}

DAT_DECL rails::rails() noexcept = default;
DAT_DECL rails::rails(std::unique_ptr<impl> i) noexcept : impl_(std::move(i)) {}
DAT_DECL rails::rails(rails&&) noexcept = default;
DAT_DECL rails& rails::operator=(rails&&) noexcept = default;
DAT_DECL rails::~rails() = default;

DAT_DECL expected<rails> rails::connect(std::span<const rail_path> paths, const rails_options& options) {
  return make(paths, options, true);
}
DAT_DECL expected<rails> rails::listen(std::span<const rail_path> paths, const rails_options& options) {
  return make(paths, options, false);
}

DAT_DECL expected<rails> rails::make(std::span<const rail_path> paths, const rails_options& options, bool active) {
  using namespace std::chrono_literals;
  const char* const call = active ? "rails.connect" : "rails.listen";
  const auto bad = [call](const char* hint, return_subtype which) {
    return error(return_type::invalid_parameter, which).at(call, object_kind::ep).hint(hint);
  };
  if (paths.empty() || paths.size() > max_rails) return bad("There must be 1 to 16 paths.", return_subtype::arg1);
  for (const rail_path& p : paths)
    if (!p.ia || !*p.ia) return bad("Each path needs an open ia.", return_subtype::arg1);
  for (const rail_path& p : paths)
    if (p.ia->native_handle()->device->transport_type == IBV_TRANSPORT_IWARP)
      return error(return_type::model_not_supported)
          .at(call, object_kind::ep)
          .hint("A path has an adapter of iWARP, which has no immediate data.");
  if (options.spread > rails_spread::round_robin)
    return bad("`spread` must be by_bytes or round_robin.", return_subtype::arg2);
  if (options.failover_within < 90ms || options.failover_within > 60s)
    return bad("`failover_within` must be from 90 ms to 60 s.", return_subtype::arg2);
  if (options.cool_down < 0ms || options.max_cool_down < options.cool_down)
    return bad("`cool_down` must not be negative, nor above `max_cool_down`.", return_subtype::arg2);
  if (options.depth < 1 || options.depth > 4096) return bad("`depth` must be from 1 to 4096.", return_subtype::arg2);
  if (detail::rail::overtaking(paths.size(), options.depth) > detail::rail::half / 2)
    return bad("`depth` must be at most 2048 divided by the number of paths less 1.", return_subtype::arg2);
  if (options.window < 1 || options.window > detail::rail::half)
    return bad("`window` must be from 1 to 8192.", return_subtype::arg2);
  if (!options.clock) return bad("`clock` must be a function.", return_subtype::arg2);

  auto i = std::make_unique<impl>();
  i->options = options;
  i->active = active;
  if (active) {
    std::random_device random;
    i->session = std::uint64_t{random()} << 32 | random() | 1; // 0: none yet
  }
  i->messages.resize(options.window);
  for (std::uint32_t k = options.window; k > 0; --k) i->free.push_back(k - 1);
  i->queue = detail::rail::place_queue(options.window);
  for (auto& s : i->settled) s.resize(detail::rail::sequences);
  for (auto& a : i->arrivals) a.resize(detail::rail::half);
  if (auto ok = i->open(paths); !ok) return ok.assume_error();
  return rails(std::move(i));
}

DAT_DECL expected<rails_memory> rails::register_bytes(std::span<std::byte> bytes) {
  if (!impl_)
    return error(return_type::invalid_handle, return_subtype::handle_ep).at("rails.register_memory", object_kind::ep);
  rails_memory made;
  made.regions_ = std::make_unique<std::vector<rails_memory::region>>();
  for (auto& r : impl_->all) {
    auto region = r.pz.register_memory(bytes, rails_rights);
    if (!region) return region.assume_error();
    made.regions_->push_back(std::move(region).assume_value());
  }
  return made;
}

DAT_DECL expected<void> rails::write(const rails_memory& from, std::size_t first, std::size_t bytes,
                                     const rails_remote& to, std::uint64_t at, const rails_write& properties) noexcept {
  static constexpr const char* call = "rails.write";
  const auto bad = [](return_subtype which, const char* hint) {
    return error(return_type::invalid_parameter, which).at(call, object_kind::ep).hint(hint);
  };
  if (!impl_) return error(return_type::invalid_handle, return_subtype::handle_ep).at(call, object_kind::ep);
  if (!from || !to) return error(return_type::invalid_handle, return_subtype::handle_lmr).at(call, object_kind::ep);
  if (from.regions_->size() != impl_->all.size() || to.segments_->size() != impl_->all.size())
    return bad(return_subtype::none, "The memory must be registered by these rails, and by those of the peer.");
  if (first > from.size_bytes() || bytes > from.size_bytes() - first)
    return bad(return_subtype::arg3, "The range first + bytes must not exceed the memory.");
  if (at > to.size_bytes() || bytes > to.size_bytes() - at)
    return bad(return_subtype::arg5, "The range at + bytes must not exceed the peer's memory.");
  for (const auto& r : impl_->all)
    if (bytes > r.largest)
      return error(return_type::length_error)
          .at(call, object_kind::ep)
          .hint("An adapter cannot send a message of that length: write several.");
  const std::size_t which = properties.ordered;
  const std::uint32_t sequence = impl_->next_sequence[which];
  const std::uint32_t ahead = (sequence - impl_->oldest[which]) & (detail::rail::sequences - 1);
  const std::size_t most = detail::rail::half - 1 - detail::rail::overtaking(impl_->all.size(), impl_->options.depth);
  if (impl_->free.empty() || ahead >= most)
    return error(return_type::insufficient_resources, return_subtype::resource_credits)
        .at(call, object_kind::ep)
        .hint("As many messages as `window` allows are not done, or one is not done for long: call `run` or `wait`.");
  const std::uint32_t place = impl_->free.back();
  impl_->free.pop_back();
  impl_->next_sequence[which] = (sequence + 1) & (detail::rail::sequences - 1);
  impl_->messages[place] = {from.regions_.get(), to.segments_.get(), first, bytes, at, properties.cookie, sequence,
                            properties.tag,      properties.ordered, false};
  impl_->queue.push_back(place);
  impl_->pump();
  return success();
}

DAT_DECL expected<void> rails::step() {
  if (!impl_) return error(return_type::invalid_handle, return_subtype::handle_ep).at("rails.run", object_kind::ep);
  impl_->step();
  return success();
}

/// The next event: one that has happened, or an ordered message whose turn it is.
DAT_DECL std::optional<rails_event> rails::next() noexcept {
  if (!impl_) return std::nullopt;
  if (!impl_->events.empty()) {
    const rails_event e = impl_->events.front();
    impl_->events.pop_front();
    return e;
  }
  for (;;) {
    auto& slot = impl_->arrivals[1][impl_->expected_sequence[1] % detail::rail::half];
    if (!slot.here) return std::nullopt;
    const impl::arrival a = std::exchange(slot, {});
    impl_->expected_sequence[1] = (impl_->expected_sequence[1] + 1) & (detail::rail::sequences - 1);
    if (!a.skip) return rails_message{a.tag, true, a.bytes};
  }
}

DAT_DECL std::vector<int> rails::descriptors() const {
  std::vector<int> fds;
  if (!impl_) return fds;
  for (const auto& r : impl_->all) {
    fds.push_back(r.cno.fd());
    if (const int fd = r.path.ia->fd(); fd >= 0 && std::find(fds.begin(), fds.end(), fd) == fds.end())
      fds.push_back(fd);
  }
  return fds;
}
DAT_DECL void rails::take_triggers() noexcept {
  if (!impl_) return;
  for (auto& r : impl_->all) (void)r.cno.wait(timeout::zero());
}

DAT_DECL expected<void> rails::sleep(std::chrono::steady_clock::time_point until) noexcept {
  static constexpr const char* call = "rails.wait";
  std::array<pollfd, 2 * max_rails> fds{};
  auto last = fds.begin();
  for (const auto& r : impl_->all)
    for (const int fd : {r.cno.fd(), r.path.ia->fd()}) { // ppoll leaves out the -1 of an ia with a thread
      last->fd = fd;
      last++->events = POLLIN;
    }
  const auto start = std::chrono::steady_clock::now();
  if (start >= until) return error(return_type::timeout_expired).at(call, object_kind::ep);
  // The clock of the rails measures the time until their next work.
  const auto work = std::max(impl_->next_time() - impl_->now(), std::chrono::nanoseconds(0));
  const auto most = std::min<std::chrono::nanoseconds>({until - start, work, std::chrono::seconds(1)});
  const timespec limit{most.count() / 1'000'000'000, most.count() % 1'000'000'000};
  if (::ppoll(fds.data(), static_cast<nfds_t>(last - fds.begin()), &limit, nullptr) < 0 && errno == EINTR)
    return error(return_type::interrupted_call).at(call, object_kind::ep);
  take_triggers();
  return success();
}

DAT_DECL std::size_t rails::size() const noexcept { return impl_ ? impl_->all.size() : 0; }
DAT_DECL std::size_t rails::up() const noexcept { return impl_ ? impl_->up() : 0; }
DAT_DECL std::size_t rails::not_done() const noexcept {
  return impl_ ? impl_->messages.size() - impl_->free.size() : 0;
}
DAT_DECL std::uint64_t rails::duplicates() const noexcept { return impl_ ? impl_->twice : 0; }
DAT_DECL rail_health rails::health(std::size_t rail) const noexcept {
  if (!impl_ || rail >= impl_->all.size()) return {};
  const auto& r = impl_->all[rail];
  rail_health h = r.health;
  h.up = r.at == detail::rail::stage::up;
  h.lives = r.life;
  h.under_way = static_cast<std::uint32_t>(r.posted.size());
  h.bytes_under_way = r.bytes;
  return h;
}
DAT_DECL expected<void> rails::disconnect(std::size_t rail) noexcept {
  static constexpr const char* call = "rails.disconnect";
  if (!impl_) return error(return_type::invalid_handle, return_subtype::handle_ep).at(call, object_kind::ep);
  if (rail >= impl_->all.size())
    return error(return_type::invalid_parameter, return_subtype::arg1)
        .at(call, object_kind::ep)
        .hint("The index must be below size().");
  impl_->fail(impl_->all[rail], "The program has disconnected the rail.");
  return success();
}

}} // namespace dat::v0

#include <dat/detail/impl/rails_run.ipp>
