// Definitions of rails.hpp: the rails at work.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/impl/rails_state.hpp>
#include <dat/rails.hpp>

#include <dat/ep_params.hpp>

#include <algorithm>
#include <string>

namespace dat { inline namespace v0 {

namespace detail::rail {

/// Why a connection event ends a rail.
template <class Event>
[[nodiscard]] std::string_view cause_of(const Event& e) noexcept {
  if constexpr (std::is_same_v<Event, peer_rejected>)
    return "The peer rejected the rail: it has another number of rails, another session or another version, or its "
           "rails are in another order.";
  else if constexpr (requires { e.cause(); })
    return e.cause();
  else
    return "The connection ended.";
}

} // namespace detail::rail

DAT_DECL std::size_t rails::impl::index_of(const rail& r) const noexcept {
  std::size_t i = 0;
  while (&all[i] != &r) ++i;
  return i;
}
DAT_DECL std::size_t rails::impl::up() const noexcept {
  std::size_t n = 0;
  for (const rail& r : all) n += r.at == detail::rail::stage::up;
  return n;
}

DAT_DECL expected<void> rails::impl::open(std::span<const rail_path> paths) {
  constexpr std::size_t size = detail::rail::control::size;
  const std::uint32_t receives = options.depth + rail::controls;
  for (const rail_path& path : paths) {
    rail& r = all.emplace_back();
    r.path = path;
    auto attributes = path.ia->query();
    if (!attributes) return attributes.assume_error();
    r.largest = attributes.assume_value().max_rdma_size;
    auto pz = path.ia->create_pz();
    if (!pz) return pz.assume_error();
    r.pz = std::move(pz).assume_value();
    auto cno = path.ia->create_cno();
    if (!cno) return cno.assume_error();
    r.cno = std::move(cno).assume_value();
    auto evd = path.ia->create_evd<rail::all>(2 * receives);
    if (!evd) return evd.assume_error();
    r.evd = std::move(evd).assume_value();
    if (auto ok = r.evd.modify_cno(r.cno); !ok) return ok;
    r.memory.resize((receives + rail::controls) * size);
    auto region = r.pz.register_memory(r.memory, dat::local_read | dat::local_write);
    if (!region) return region.assume_error();
    r.region = std::move(region).assume_value();
    r.posted = detail::rail::place_queue(options.depth);
    r.pause = options.cool_down;
    if (active) continue;
    auto psp = path.ia->create_psp(path.port, r.evd);
    if (!psp) return psp.assume_error();
    r.psp = std::move(psp).assume_value();
  }
  return success();
}

DAT_DECL void rails::impl::step() {
  using detail::rail::stage;
  for (rail& r : all) take(r);
  const auto time = now();
  for (rail& r : all) {
    if (r.ended) finish(r);
    if (r.at == stage::down && r.waiting) accept(r);
    if (active && r.at == stage::down && time >= r.connect_at) connect(r);
    if (r.at != stage::up) continue;
    send_controls(r);
    // An idle rail is tested by a write of no bytes, which the peer's adapter answers.
    if (r.at == stage::up && r.posted.empty() && !r.probing && time - r.active >= probe_interval()) {
      r.probing =
          r.ep.post(dat::rdma_write{local_segment<std::byte, mem_priv::local_read>{}, rails_remote::segment{}}.cookie(
                        detail::rail::probe_cookie))
              .has_value();
      if (!r.probing) fail(r, "The adapter refuses requests.");
    }
  }
  pump();
}

/// Takes the events of a rail.
DAT_DECL void rails::impl::take(rail& r) {
  const auto mine = [&r](const auto& e) { return r.ep && e.ep() == r.ep; };
  r.evd.drain(
      overloaded{[&](dat::cr& request) { requested(r, request); },
                 [&](const dat::established& e) {
                   if (mine(e)) established(r);
                 },
                 [&](const recv_done& e) {
                   if (!mine(e)) return;
                   const std::size_t at = e.cookie().value() * detail::rail::control::size;
                   const auto c = detail::rail::control::read(std::span<const std::byte>(r.memory).subspan(
                       at, std::min(e.bytes(), detail::rail::control::size)));
                   const auto again = r.region.slice(at, detail::rail::control::size);
                   (void)r.ep.post(recv{again.assume_value()}.cookie(e.cookie())); // refused when the rail has failed
                   if (c && c->session == session)
                     received(r, *c);
                   else
                     fail(r, "The peer sent a control message that is not of this protocol or session.");
                 },
                 [&](const ib::recv_write_immediate_done& e) {
                   if (!mine(e)) return;
                   const auto again =
                       r.region.slice(e.cookie().value() * detail::rail::control::size, detail::rail::control::size);
                   (void)r.ep.post(recv{again.assume_value()}.cookie(e.cookie()));
                   arrived(r, e.immediate(), e.bytes());
                 },
                 [&](const send_done& e) {
                   if (mine(e)) completed(r, e.cookie().value());
                 },
                 [&](const rdma_write_done& e) {
                   if (mine(e)) completed(r, e.cookie().value());
                 },
                 [&](const ib::rdma_write_immediate_done& e) {
                   if (mine(e)) completed(r, e.cookie().value());
                 },
                 [&](const dto_failure& e) {
                   if (mine(e)) failed(r, e);
                 },
                 [&](const auto& e) {
                   if constexpr (std::is_base_of_v<connection_event, std::remove_cvref_t<decltype(e)>>) {
                     if (!mine(e)) return;
                     fail(r, detail::rail::cause_of(e));
                     r.ended = true;
                   }
                 }});
}

/// The first step of the end of a life: ends the connection, after which nothing can arrive.
DAT_DECL void rails::impl::fail(rail& r, std::string_view cause) noexcept {
  using detail::rail::stage;
  if (r.at == stage::down || r.at == stage::closing) return;
  if (r.at == stage::up) r.health.cause = cause;
  r.cause = cause;
  r.known = r.known || r.at == stage::up;
  r.was_up = r.at == stage::up;
  r.at = stage::closing;
  (void)r.ep.disconnect(); // its event ends the life
}

/// The last step: all completions have been taken.
DAT_DECL void rails::impl::finish(rail& r) {
  using detail::rail::stage;
  const std::size_t index = index_of(r);
  r.ended = false;
  r.ep = {};
  if (r.known) reports.push_back({index, r.life, r.received});
  for (auto& report : reports)
    if (report.on == index) report.on = std::nullopt;
  detail::rail::unsettled life{index, r.life, r.completed, {}};
  for (; !r.posted.empty(); r.posted.pop_front()) life.posted.push_back(r.posted[0]);
  r.bytes = 0;
  if (r.settled)
    settle(life, *r.settled);
  else if (!life.posted.empty())
    lives.push_back(std::move(life));
  r.at = stage::down;
  r.known = false;
  r.settled = std::nullopt;
  r.health.cause = r.cause;
  r.connect_at = now() + r.pause;
  r.pause = std::min(2 * r.pause, options.max_cool_down);
  if (std::exchange(r.was_up, false)) events.push_back(rail_down{index, r.cause, up()});
}

DAT_DECL expected<void> rails::impl::make_ep(rail& r) {
  constexpr std::size_t size = detail::rail::control::size;
  const std::uint32_t receives = options.depth + rail::controls;
  ep_attributes attributes{.max_request_dtos = options.depth + rail::controls + 1,
                           .max_recv_dtos = receives,
                           .max_request_iov = 1,
                           .max_recv_iov = 1};
  (void)attributes.detect_dead_peer_within(options.failover_within * 3 / 4);
  auto ep = r.pz.create_ep<rc>(r.evd, attributes);
  if (!ep) return ep.assume_error();
  r.ep = std::move(ep).assume_value();
  for (std::uint32_t i = 0; i < receives; ++i) {
    const auto slot = r.region.slice(i * size, size);
    if (auto ok = r.ep.post(recv{slot.assume_value()}.cookie(i)); !ok) return ok;
  }
  r.received = r.granted = r.completed = 0;
  r.allowed = options.depth;
  r.granted = options.depth;
  r.hello_due = active;
  r.credit_under_way = r.probing = false;
  r.free_controls.clear();
  for (std::uint32_t i = 0; i < rail::controls; ++i) r.free_controls.push_back(i);
  r.at = detail::rail::stage::connecting;
  return success();
}

DAT_DECL void rails::impl::connect(rail& r) {
  const auto failed_at_once = [&](const char* cause) {
    r.ep = {};
    r.at = detail::rail::stage::down;
    r.health.cause = cause;
    r.connect_at = now() + r.pause;
    r.pause = std::min(2 * r.pause, options.max_cool_down);
  };
  ++r.life;
  if (!make_ep(r)) return failed_at_once("The adapter has no endpoint left.");
  const detail::rail::greeting hello{static_cast<std::uint8_t>(index_of(r)), static_cast<std::uint8_t>(all.size()),
                                     r.life, session};
  const auto bytes = hello.bytes();
  if (!r.ep.connect(r.path.remote, r.path.port, options.failover_within, bytes))
    failed_at_once("The adapter cannot connect to that address.");
}

DAT_DECL void rails::impl::requested(rail& r, cr& request) {
  const auto hello = detail::rail::greeting::read(request.private_data());
  if (active || !hello || hello->rail != index_of(r) || hello->rails != all.size() || hello->session == 0 ||
      hello->life <= r.life || (session != 0 && hello->session != session)) {
    (void)request.reject();
    return;
  }
  session = hello->session;
  r.wanted = *hello;
  r.waiting = std::move(request);                    // an older one is rejected
  fail(r, "The peer has connected the rail again."); // it is accepted when the previous life has ended
}

DAT_DECL void rails::impl::accept(rail& r) {
  cr request = std::move(r.waiting);
  r.life = r.wanted.life;
  if (make_ep(r) && request.accept(r.ep)) {
    r.known = true;
    return;
  }
  r.ep = {};
  r.at = detail::rail::stage::down;
  r.health.cause = "The adapter cannot accept the connection.";
}

DAT_DECL void rails::impl::established(rail& r) {
  if (active && r.at == detail::rail::stage::connecting) is_up(r);
}
DAT_DECL void rails::impl::is_up(rail& r) {
  r.at = detail::rail::stage::up;
  r.known = true;
  r.active = now();
  r.pause = options.cool_down;
  events.push_back(rail_up{index_of(r)});
  send_controls(r);
}

DAT_DECL void rails::impl::received(rail& r, const detail::rail::control& c) {
  using detail::rail::control;
  using detail::rail::stage;
  r.active = now();
  if (c.kind != control::kind_type::closed) {
    if (c.rail != index_of(r) || c.life != r.life)
      return fail(r, "The peer has another count of the connections of this rail.");
    if (c.kind == control::kind_type::credit)
      r.allowed = std::max(r.allowed, c.count);
    else if (!active && r.at == stage::connecting)
      is_up(r);
    return;
  }
  if (c.rail >= all.size()) return fail(r, "The peer reports a rail that does not exist.");
  rail& of = all[c.rail];
  if (of.life == c.life && of.at != stage::down) { // the peer has detected the failure first
    of.settled = c.count;
    return fail(of, "The peer has closed the rail.");
  }
  for (std::size_t i = 0; i < lives.size(); ++i)
    if (lives[i].rail == c.rail && lives[i].life == c.life) {
      const auto life = std::move(lives[i]);
      lives.erase(lives.begin() + static_cast<std::ptrdiff_t>(i));
      return settle(life, c.count);
    }
}

DAT_DECL void rails::impl::arrived(rail& r, std::uint32_t immediate, std::size_t bytes) {
  r.active = now();
  const auto [ordered, skip, sequence, tag] = detail::rail::label::of(immediate);
  const std::size_t which = ordered ? 1 : 0;
  std::uint32_t& expected = expected_sequence[which];
  arrival& slot = arrivals[which][sequence % detail::rail::half];
  if (((sequence - expected) & (detail::rail::sequences - 1)) >= detail::rail::half || slot.here) {
    ++twice; // Soft-RoCE sometimes delivers a message twice, when its acknowledgement was lost: it counts once
    return;
  }
  ++r.received;
  ++r.health.received;
  slot = {static_cast<std::uint32_t>(bytes), tag, true, skip};
  if (which == 1) return; // next() delivers it in its turn
  if (!skip) events.push_back(rails_message{slot.tag, false, slot.bytes});
  while (arrivals[0][expected % detail::rail::half].here) {
    arrivals[0][expected % detail::rail::half] = {};
    expected = (expected + 1) & (detail::rail::sequences - 1);
  }
}

DAT_DECL void rails::impl::completed(rail& r, std::uint64_t cookie) {
  r.active = now();
  if (cookie == detail::rail::probe_cookie) {
    r.probing = false;
  } else if (cookie >= detail::rail::control_cookie) {
    const auto buffer = static_cast<std::uint32_t>(cookie - detail::rail::control_cookie);
    r.free_controls.push_back(buffer);
    const std::size_t at = (options.depth + rail::controls + buffer) * detail::rail::control::size;
    const auto c =
        detail::rail::control::read(std::span<const std::byte>(r.memory).subspan(at, detail::rail::control::size));
    if (c->kind == detail::rail::control::kind_type::credit) r.credit_under_way = false;
    if (c->kind == detail::rail::control::kind_type::closed)
      std::erase_if(reports, [&](const auto& report) { return report.rail == c->rail && report.life == c->life; });
  } else {
    const std::uint32_t place = r.posted.pop_front();
    r.bytes -= messages[place].bytes;
    ++r.completed;
    done(place, true);
  }
}

DAT_DECL void rails::impl::failed(rail& r, const dto_failure& e) {
  if (e.status() == dto_status::flushed) return fail(r, "The connection has ended.");
  const std::uint64_t cookie = e.cookie().value();
  const bool own = e.status() == dto_status::remote_access || e.status() == dto_status::local_protection ||
                   e.status() == dto_status::local_length;
  if (own && cookie < messages.size() && e.operation() != dto_operation::recv && !messages[cookie].skip) {
    messages[cookie].skip = true;
    events.push_back(rails_write_failed{messages[cookie].cookie, e.status()});
  }
  fail(r, e.cause());
}

/// Settles a life: the peer has reported how many of its messages have arrived.
DAT_DECL void rails::impl::settle(const detail::rail::unsettled& life, std::uint64_t arrived) {
  const std::uint64_t more = arrived > life.completed ? arrived - life.completed : 0;
  for (std::size_t i = life.posted.size(); i-- > 0;)
    if (i >= more) queue.push_front(life.posted[i]);
  for (std::size_t i = 0; i < life.posted.size() && i < more; ++i) done(life.posted[i], true);
}

DAT_DECL void rails::impl::done(std::uint32_t place, bool report) {
  const auto& m = messages[place];
  if (report && !m.skip) events.push_back(rails_write_done{m.cookie});
  auto& bits = settled[m.ordered];
  bits[m.sequence] = true;
  for (std::uint32_t& first = oldest[m.ordered]; bits[first]; first = (first + 1) & (detail::rail::sequences - 1))
    bits[first] = false;
  free.push_back(place);
}

DAT_DECL bool rails::impl::send(rail& r, const detail::rail::control& c) {
  if (r.free_controls.empty()) return false;
  const std::uint32_t buffer = r.free_controls.back();
  const std::size_t at = (options.depth + rail::controls + buffer) * detail::rail::control::size;
  c.write(std::span(r.memory).subspan(at, detail::rail::control::size));
  const auto piece = r.region.slice(at, detail::rail::control::size);
  if (!r.ep.post(dat::send{piece.assume_value()}.solicited().cookie(detail::rail::control_cookie + buffer))) {
    fail(r, "The adapter refuses requests.");
    return false;
  }
  r.free_controls.pop_back();
  return true;
}

DAT_DECL void rails::impl::send_controls(rail& r) {
  using detail::rail::control;
  const auto index = static_cast<std::uint8_t>(index_of(r));
  if (r.hello_due) r.hello_due = !send(r, {control::kind_type::hello, index, r.life, 0, session});
  if (r.hello_due) return;
  for (auto& report : reports) {
    if (report.on || r.at != detail::rail::stage::up) continue;
    if (send(r, {control::kind_type::closed, static_cast<std::uint8_t>(report.rail), report.life, report.received,
                 session}))
      report.on = index;
  }
  const std::uint64_t grant = r.received + options.depth;
  if (r.at == detail::rail::stage::up && !r.credit_under_way && grant - r.granted >= (options.depth + 1) / 2 &&
      send(r, {control::kind_type::credit, index, r.life, grant, session})) {
    r.granted = grant;
    r.credit_under_way = true;
  }
}

DAT_DECL rails::impl::rail* rails::impl::choose() noexcept {
  rail* best = nullptr;
  for (std::size_t i = 0; i < all.size(); ++i) {
    rail& r = all[(turn + i) % all.size()];
    if (r.at != detail::rail::stage::up || r.hello_due || r.posted.size() >= options.depth ||
        r.completed + r.posted.size() >= r.allowed)
      continue;
    if (!best || r.bytes < best->bytes) best = &r;
    if (options.spread == rails_spread::round_robin) break;
  }
  if (best) turn = index_of(*best) + 1;
  return best;
}

DAT_DECL void rails::impl::pump() {
  while (!queue.empty()) {
    const std::uint32_t place = queue[0];
    rail* const r = choose();
    if (!r) return;
    if (!post(*r, place)) {
      fail(*r, "The adapter refuses requests.");
      continue;
    }
    queue.pop_front();
    r->posted.push_back(place);
    r->bytes += messages[place].bytes;
    ++r->health.sent;
  }
}

DAT_DECL expected<void> rails::impl::post(rail& r, std::uint32_t place) noexcept {
  const auto& m = messages[place];
  const std::size_t index = index_of(r);
  const std::uint32_t immediate = detail::rail::label{m.ordered, m.skip, m.sequence, m.tag}.immediate();
  if (m.skip || m.bytes == 0)
    return r.ep.post(dat::rdma_write{local_segment<std::byte, mem_priv::local_read>{}, rails_remote::segment{}}
                         .solicited_immediate(immediate)
                         .cookie(place));
  const auto from = (*m.from)[index].slice(m.first, m.bytes);
  if (!from) return from.assume_error();
  const auto to = (*m.to)[index].slice(m.at, m.bytes);
  if (!to) return to.assume_error();
  return r.ep.post(
      dat::rdma_write{from.assume_value(), to.assume_value()}.solicited_immediate(immediate).cookie(place));
}

/// The time of the next work that no event announces.
DAT_DECL detail::rail::time_point rails::impl::next_time() const noexcept {
  auto first = now() + options.failover_within;
  for (const rail& r : all) {
    if (active && r.at == detail::rail::stage::down) first = std::min(first, r.connect_at);
    if (r.at == detail::rail::stage::up && r.posted.empty() && !r.probing)
      first = std::min(first, r.active + probe_interval());
  }
  return first;
}
}} // namespace dat::v0
