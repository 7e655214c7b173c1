// Consumer notification objects.
// SPDX-License-Identifier: BSL-1.0
#include "calls.hpp"
#include "entries.hpp"

namespace provider {
namespace {

/// Calls the agent of C with the handle of the evd. The cno waits for it before it ends.
void call_agent(void* instance, dat::evd_id evd) noexcept {
  cno_object& c = *static_cast<cno_object*>(instance);
  const DAT_AGENT_FUNC agent = c.agent.load();
  if (agent) agent(c.instance.load(), c.ia.evd_of(evd));
}

/// Remembers an agent, and gives the one of dat that calls it.
[[nodiscard]] dat::wait_proxy_agent take(cno_object& c, const DAT_OS_WAIT_PROXY_AGENT& agent) noexcept {
  c.instance.store(agent.instance_data);
  c.agent.store(agent.proxy_agent_func);
  if (!agent.proxy_agent_func) return {};
  return {.call = call_agent, .instance = &c};
}
[[nodiscard]] bool is_agent(const DAT_OS_WAIT_PROXY_AGENT& agent) noexcept {
  return agent.proxy_agent_func || !agent.instance_data;
}

[[nodiscard]] DAT_RETURN create(DAT_IA_HANDLE ia, const DAT_OS_WAIT_PROXY_AGENT& agent, DAT_FD* fd, DAT_CNO_HANDLE* cno,
                                const char* call) noexcept {
  const entry_call<adapter> a(ia, call);
  if (!a) return a.bad_handle();
  if (!is_agent(agent)) return a.bad_argument(2);
  if (!cno) return a.bad_argument(3);
  auto c = make_object<cno_object>(*a);
  if (!c) return a.no_memory();
  auto made = a->ia.create_cno(take(*c, agent));
  if (!made) return word(made);
  c->cno = std::move(made).assume_value();
  c->proxy = fd ? DAT_PROXY_TYPE_FD : agent.proxy_agent_func ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE;
  if (fd) *fd = c->cno.fd();
  *cno = a->add(std::move(c));
  return *cno ? DAT_RETURN{DAT_SUCCESS} : a.no_memory();
}

} // namespace

DAT_RETURN cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE* cno) {
  return create(ia, agent, nullptr, cno, "dat_cno_create");
}

DAT_RETURN cno_fd_create(DAT_IA_HANDLE ia, DAT_FD* fd, DAT_CNO_HANDLE* cno) {
  static constexpr const char* call = "dat_cno_fd_create";
  return fd ? create(ia, {}, fd, cno, call) : bad_argument(2, call);
}

DAT_RETURN cno_modify_agent(DAT_CNO_HANDLE cno, DAT_OS_WAIT_PROXY_AGENT agent) {
  const entry_call<cno_object> c(cno, "dat_cno_modify_agent");
  if (!c) return c.bad_handle();
  if (!is_agent(agent)) return c.bad_argument(2);
  if (c->proxy != DAT_PROXY_TYPE_FD) c->proxy = agent.proxy_agent_func ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE;
  return word(c->cno.modify_agent(take(*c, agent)));
}

DAT_RETURN cno_query(DAT_CNO_HANDLE cno, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM* param) {
  constexpr auto all = DAT_CNO_FIELD_PROXY | DAT_CNO_FIELD_ALL;
  const auto fill = [](const cno_object& c, DAT_CNO_PARAM& to) {
    to = {};
    to.ia_handle = c.ia.self;
    to.proxy_type = c.proxy;
    if (c.proxy == DAT_PROXY_TYPE_FD)
      to.proxy.fd = c.cno.fd();
    else if (c.cno.agent().call) // the one that the next trigger calls: a trigger removes it
      to.proxy.agent = {c.instance.load(), c.agent.load()};
    else
      to.proxy_type = DAT_PROXY_TYPE_NONE;
    return success;
  };
  return query<cno_object>(cno, mask, all, param, "dat_cno_query", fill);
}

DAT_RETURN cno_free(DAT_CNO_HANDLE cno) {
  const auto close = [](cno_object& c) { return word(c.cno.close()); };
  return end_object<cno_object>(cno, "dat_cno_free", close, return_subtype::cno_in_use);
}

DAT_RETURN cno_wait(DAT_CNO_HANDLE cno, DAT_TIMEOUT timeout, DAT_EVD_HANDLE* evd) {
  const entry_call<cno_object> c(cno, "dat_cno_wait");
  if (!c) return c.bad_handle();
  if (!evd) return c.bad_argument(3);
  c->waiters.fetch_add(1);
  const auto triggered = c->cno.wait(to_timeout(timeout));
  c->waiters.fetch_sub(1);
  *evd = triggered ? c->ia.evd_of(triggered.assume_value()) : DAT_HANDLE_NULL;
  return word(triggered);
}

DAT_RETURN cno_trigger(DAT_CNO_HANDLE cno, DAT_EVD_HANDLE* evd) {
  const entry_call<cno_object> c(cno, "dat_cno_trigger");
  if (!c) return c.bad_handle();
  if (!evd) return c.bad_argument(2);
  *evd = c->ia.evd_of(c->cno.latest());
  return *evd ? DAT_RETURN{DAT_SUCCESS} : c.refuse(return_type::queue_empty);
}

} // namespace provider
