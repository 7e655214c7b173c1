// Consumer notification objects.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"

#include <mutex>
#include <new>

namespace provider {
namespace {

/// The agent that the next trigger calls; null when there is none. The caller holds the mutex, so that it is not called
/// meanwhile.
[[nodiscard]] const DAT_OS_WAIT_PROXY_AGENT* next_agent(const cno_object& c) noexcept {
  const dat::wait_proxy_agent next = c.cno.agent();
  return next.call ? &static_cast<const cno_agent*>(next.instance)->given : nullptr;
}

/// Calls the agent of C with the handle of the evd. The cno waits for it before it ends.
void call_agent(void* instance, dat::evd_id evd) noexcept {
  const cno_agent& armed = *static_cast<cno_agent*>(instance);
  cno_object& c = armed.of;
  const DAT_OS_WAIT_PROXY_AGENT agent = armed.given;
  {
    const section here;
    const std::lock_guard lock(c.mutex);
    while (&c.agents.front() != &armed) c.agents.pop_front(); // they were replaced
    c.agents.pop_front();
  }
  agent.proxy_agent_func(agent.instance_data, c.ia.evd_of(evd));
}

/// Remembers an agent, and gives the one of dat that calls it. The caller holds the mutex until dat has it. Fails
/// without memory.
[[nodiscard]] dat::expected<dat::wait_proxy_agent> take(cno_object& c, const DAT_OS_WAIT_PROXY_AGENT& agent) noexcept {
  if (c.proxy != DAT_PROXY_TYPE_FD) c.proxy = agent.proxy_agent_func ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE;
  if (!agent.proxy_agent_func) return dat::wait_proxy_agent{};
  try {
    c.agents.push_back({c, agent});
    return dat::wait_proxy_agent{.call = call_agent, .instance = &c.agents.back()};
  } catch (const std::bad_alloc&) {
    return dat::error(return_type::insufficient_resources, return_subtype::resource_memory);
  }
}
[[nodiscard]] bool is_agent(const DAT_OS_WAIT_PROXY_AGENT& agent) noexcept {
  return agent.proxy_agent_func || !agent.instance_data;
}

[[nodiscard]] DAT_RETURN create_cno(const entry_call<adapter>& a, const DAT_OS_WAIT_PROXY_AGENT& agent, DAT_FD* fd,
                                    DAT_CNO_HANDLE* cno) noexcept {
  if (!is_agent(agent)) return a.bad_argument(2);
  if (!cno) return a.bad_argument(3);
  auto c = make_object<cno_object>(*a);
  if (!c) return a.no_memory();
  if (fd) c->proxy = DAT_PROXY_TYPE_FD;
  const auto armed = take(*c, agent);
  if (!armed) return word(armed);
  auto made = a->ia.create_cno(armed.assume_value());
  if (!made) return word(made);
  c->cno = std::move(made).assume_value();
  if (fd) *fd = c->cno.fd();
  *cno = a->add(std::move(c));
  return *cno ? success : a.no_memory();
}

[[nodiscard]] DAT_RETURN modify_agent(const entry_call<cno_object>& c, DAT_OS_WAIT_PROXY_AGENT agent) noexcept {
  if (!is_agent(agent)) return c.bad_argument(2);
  const std::lock_guard lock(c->mutex);
  const DAT_OS_WAIT_PROXY_AGENT* const next = next_agent(*c);
  if (next && next->proxy_agent_func == agent.proxy_agent_func && next->instance_data == agent.instance_data)
    return success; // so a program that sets one agent again and again does not fill the list
  const auto armed = take(*c, agent);
  return armed ? word(c->cno.modify_agent(armed.assume_value())) : word(armed);
}

[[nodiscard]] DAT_CNO_PARAM parameters(cno_object& c) noexcept {
  const std::lock_guard lock(c.mutex);
  DAT_CNO_PARAM to{.ia_handle = c.ia.self, .proxy_type = c.proxy, .proxy = {}};
  if (c.proxy == DAT_PROXY_TYPE_FD)
    to.proxy.fd = c.cno.fd();
  else if (const DAT_OS_WAIT_PROXY_AGENT* const next = next_agent(c)) // a trigger removes it
    to.proxy.agent = *next;
  else
    to.proxy_type = DAT_PROXY_TYPE_NONE;
  return to;
}

} // namespace

void add_cno_entries(DAT_PROVIDER& table) noexcept {
  table.cno_create_func = entry<adapter, "dat_cno_create">(
      [](auto& a, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE* cno) { return create_cno(a, agent, nullptr, cno); });
  table.cno_fd_create_func = entry<adapter, "dat_cno_fd_create">(
      [](auto& a, DAT_FD* fd, DAT_CNO_HANDLE* cno) { return fd ? create_cno(a, {}, fd, cno) : a.bad_argument(2); });
  table.cno_modify_agent_func = entry<cno_object, "dat_cno_modify_agent", modify_agent>();
  constexpr auto all_fields = DAT_CNO_FIELD_PROXY | DAT_CNO_FIELD_ALL;
  table.cno_query_func = query<cno_object, "dat_cno_query", all_fields>([](auto& c) { return parameters(c); });
  table.cno_wait_func =
      entry<cno_object, "dat_cno_wait">([](auto& c, DAT_TIMEOUT timeout, DAT_EVD_HANDLE* evd) -> DAT_RETURN {
        if (!evd) return c.bad_argument(3);
        c->waiters.fetch_add(1);
        const auto triggered = c->cno.wait(to_timeout(timeout));
        c->waiters.fetch_sub(1);
        *evd = triggered ? c->ia.evd_of(triggered.assume_value()) : DAT_HANDLE_NULL;
        return word(triggered);
      });
  table.cno_trigger_func = entry<cno_object, "dat_cno_trigger">([](auto& c, DAT_EVD_HANDLE* evd) -> DAT_RETURN {
    if (!evd) return c.bad_argument(2);
    *evd = c->ia.evd_of(c->cno.latest());
    return *evd ? success : c.refuse(return_type::queue_empty);
  });
  table.cno_free_func = entry<cno_object, "dat_cno_free">([](auto& c) {
    return end_object(
        c, [](cno_object& o) { return o.cno.close(); }, return_subtype::cno_in_use);
  });
}

} // namespace provider
