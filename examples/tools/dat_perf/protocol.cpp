// The messages between client and server as JSON.
// SPDX-License-Identifier: BSL-1.0
#include "protocol.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

namespace perf {

namespace {

using json = nlohmann::json;
constexpr int version = 1;

json of(const grants& g) { return {{"data", g.data}, {"words", g.words}, {"datagrams", g.datagrams}}; }
grants grants_of(const json& j) {
  return {j.at("data").get<std::string>(), j.at("words").get<std::string>(),
          j.at("datagrams").get<std::vector<std::string>>()};
}

template <class Enum, class Names>
Enum named(const json& j, const Names& names) {
  const auto found = std::find(names.begin(), names.end(), j.get<std::string>());
  if (found == names.end()) throw std::runtime_error(fmt::format("unknown word {}", j.dump()));
  return static_cast<Enum>(found - names.begin());
}

json of(const parameters& p) {
  return {{"test", to_string(p.test)},
          {"operation", to_string(p.operation)},
          {"mode", to_string(p.mode)},
          {"shared_queue", p.shared_queue},
          {"bidirectional", p.bidirectional},
          {"endpoints", p.endpoints},
          {"depth", p.depth},
          {"sizes", p.sizes},
          {"seconds", p.seconds},
          {"iterations", p.iterations},
          {"warm_up", p.warm_up},
          {"max_inline", p.max_inline},
          {"exact_inline", p.exact_inline}};
}
parameters parameters_of(const json& j) {
  parameters p;
  p.test = named<test>(j.at("test"), test_names);
  p.operation = named<operation>(j.at("operation"), operation_names);
  p.mode = named<mode>(j.at("mode"), mode_names);
  j.at("shared_queue").get_to(p.shared_queue);
  j.at("bidirectional").get_to(p.bidirectional);
  j.at("endpoints").get_to(p.endpoints);
  j.at("depth").get_to(p.depth);
  j.at("sizes").get_to(p.sizes);
  j.at("seconds").get_to(p.seconds);
  j.at("iterations").get_to(p.iterations);
  j.at("warm_up").get_to(p.warm_up);
  j.at("max_inline").get_to(p.max_inline);
  j.at("exact_inline").get_to(p.exact_inline);
  const auto in = [](std::uint64_t n, std::uint64_t most) { return n >= 1 && n <= most; };
  if (!in(p.endpoints, parameters::max_endpoints) || !in(p.depth, parameters::max_depth) || p.sizes.empty() ||
      p.sizes.size() > 1000 ||
      !std::all_of(p.sizes.begin(), p.sizes.end(), [&](std::uint32_t s) { return in(s, parameters::max_size); }) ||
      !(p.seconds > 0 && p.seconds <= parameters::max_seconds) || (p.shared_queue && p.mode == mode::coroutine))
    throw std::runtime_error("a parameter is out of its range");
  return p;
}

struct writer {
  json operator()(const setup& m) const {
    return {{"type", "setup"}, {"version", version}, {"parameters", of(m.run)}, {"memory", of(m.memory)}};
  }
  json operator()(const ready& m) const {
    return {{"type", "ready"},       {"host", m.host},   {"adapter", m.adapter},
            {"address", m.address},  {"token", m.token}, {"max_inline", m.max_inline},
            {"memory", of(m.memory)}};
  }
  json operator()(const start& m) const { return {{"type", "start"}, {"size", m.size}}; }
  json operator()(const ended& m) const { return {{"type", "ended"}, {"sent", m.sent}, {"seconds", m.seconds}}; }
  json operator()(const received& m) const {
    return {{"type", "received"}, {"counts", m.counts}, {"credits", m.credits}};
  }
  json operator()(const failure& m) const { return {{"type", "failed"}, {"problem", m.problem}}; }
  json operator()(const bye&) const { return {{"type", "bye"}}; }
};

message read(const json& j) {
  const std::string type = j.at("type").get<std::string>();
  if (type == "setup") {
    if (j.at("version") != version)
      throw std::runtime_error(fmt::format("the client has version {} of the protocol, this side has {}: install the "
                                           "same dat-perf on both",
                                           j.at("version").dump(), version));
    return setup{parameters_of(j.at("parameters")), grants_of(j.at("memory"))};
  }
  if (type == "ready")
    return ready{j.at("host").get<std::string>(),    j.at("adapter").get<std::string>(),
                 j.at("address").get<std::string>(), j.at("max_inline").get<std::uint32_t>(),
                 j.at("token").get<std::uint64_t>(), grants_of(j.at("memory"))};
  if (type == "start") return start{j.at("size").get<std::uint32_t>()};
  if (type == "ended") return ended{j.at("sent").get<std::vector<std::uint64_t>>(), j.at("seconds").get<double>()};
  if (type == "received")
    return received{j.at("counts").get<std::vector<std::uint64_t>>(),
                    j.at("credits").get<std::vector<std::uint64_t>>()};
  if (type == "failed") return failure{j.at("problem").get<std::string>()};
  if (type == "bye") return bye{};
  throw std::runtime_error(fmt::format("unknown type \"{}\"", type));
}

} // namespace

std::string to_text(const message& m) {
  return std::visit(writer(), m).dump(-1, ' ', false, json::error_handler_t::replace);
}

message from_text(std::string_view text) {
  try {
    return read(json::parse(text));
  } catch (const std::exception& e) {
    throw std::runtime_error(fmt::format("the peer has sent an unusable message: {}", e.what()));
  }
}

} // namespace perf
