// Definitions of counters.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/counters.hpp>

#include <algorithm>
#include <cstdio>
#include <dirent.h>
#include <memory>
#include <optional>

namespace dat { inline namespace v0 {

namespace detail {

/// Calls `plain(metric, value, grows)` or `by_name(metric, label, name, value)` for each number. Both text forms have
/// the numbers in this order.
template <class Plain, class ByName>
void each_counter(const counter_values& v, const Plain& plain, const ByName& by_name) {
  using by_operation = counter_values::by_operation;
  const auto operations = [&](const char* metric, std::uint64_t by_operation::*member) {
    for (std::size_t i = 0; i < v.operations.size(); ++i)
      by_name(metric, "operation", to_string(static_cast<dto_operation>(i)), v.operations[i].*member);
  };
  operations("operations_posted", &by_operation::posted);
  operations("bytes_posted", &by_operation::posted_bytes);
  operations("operations_completed", &by_operation::completed);
  operations("bytes_completed", &by_operation::bytes);
  for (std::size_t i = 0; i < v.failures.size(); ++i)
    by_name("operations_failed", "status", to_string(static_cast<dto_status>(i)), v.failures[i]);
  for (std::size_t i = 0; i < v.connection_outcomes.size(); ++i)
    by_name("connection_events", "event", to_string(static_cast<connection_outcome>(i)), v.connection_outcomes[i]);
  plain("connection_requests", v.connection_requests, true);
  plain("other_events", v.other_events, true);
  plain("refused_posts", v.refused_posts, true);
  plain("drains", v.drains, true);
  plain("empty_drains", v.empty_drains, true);
  plain("expired_waits", v.expired_waits, true);
  plain("wake_ups", v.wake_ups, true);
  plain("most_drained", v.most_drained, false);
  plain("most_requests", v.most_requests, false);
  plain("most_receives", v.most_receives, false);
}

/// A text between quotation marks, for Prometheus and for JSON.
[[nodiscard]] DAT_DECL std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

/// The number in a file of sysfs; empty when there is none.
[[nodiscard]] DAT_DECL std::optional<std::uint64_t> number_in(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  unsigned long long n = 0;
  if (!file || std::fscanf(file.get(), "%llu", &n) != 1) return std::nullopt;
  return n;
}

} // namespace detail

DAT_DECL expected<std::string> prometheus_labels(std::initializer_list<metric_label> labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    const auto in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (name.empty() || (name[0] >= '0' && name[0] <= '9') || !std::all_of(name.begin(), name.end(), in_name))
      return error(return_type::invalid_parameter, return_subtype::arg1)
          .at("prometheus_labels")
          .hint("The name of a label has the characters a-z, A-Z, 0-9 and _, and does not begin with a digit.");
    if (!text.empty()) text += ',';
    text.append(name).append("=\"").append(detail::escaped(value)).append("\"");
  }
  return text;
}

DAT_DECL std::string to_prometheus(std::span<const labelled_counters> objects) {
  struct metric {
    std::string_view name;
    bool grows;
    std::string samples;
  };
  std::vector<metric> metrics;
  const auto samples_of = [&](const char* name, bool grows) -> std::string& {
    const auto is_it = [name](const metric& m) { return m.name == name; };
    auto at = std::find_if(metrics.begin(), metrics.end(), is_it);
    if (at == metrics.end()) at = metrics.insert(at, {name, grows, {}});
    return at->samples;
  };
  for (const labelled_counters& object : objects) {
    detail::each_counter(
        object.values,
        [&](const char* name, std::uint64_t n, bool grows) {
          std::string& text = samples_of(name, grows);
          text.append("dat_").append(name).append(grows ? "_total" : "");
          if (!object.labels.empty()) text.append("{").append(object.labels).append("}");
          text.append(" ").append(std::to_string(n)).append("\n");
        },
        [&](const char* name, const char* label, std::string_view value, std::uint64_t n) {
          std::string& text = samples_of(name, true); // the order of the metrics does not depend on the numbers
          if (n == 0) return;
          text.append("dat_").append(name).append("_total{").append(label).append("=\"").append(value).append("\"");
          if (!object.labels.empty()) text.append(",").append(object.labels);
          text.append("} ").append(std::to_string(n)).append("\n");
        });
  }
  std::string text;
  for (const metric& m : metrics) {
    if (m.samples.empty()) continue;
    text.append("# TYPE dat_").append(m.name).append(m.grows ? "_total counter\n" : " gauge\n").append(m.samples);
  }
  return text;
}

DAT_DECL std::string to_prometheus(const counter_values& values, std::string_view labels) {
  const labelled_counters one{labels, values};
  return to_prometheus(std::span(&one, 1));
}

DAT_DECL std::string to_json(const counter_values& values) {
  std::string text = "{";
  std::string_view open; // the object that is being written
  const auto next = [&] {
    if (text.back() != '{') text += ',';
  };
  const auto member = [&](std::string_view name, std::uint64_t n) {
    next();
    text.append("\"").append(name).append("\":").append(std::to_string(n));
  };
  const auto close = [&] {
    if (!open.empty()) text += '}';
    open = {};
  };
  detail::each_counter(
      values,
      [&](const char* metric, std::uint64_t n, bool) {
        close();
        member(metric, n);
      },
      [&](const char* metric, const char*, std::string_view name, std::uint64_t n) {
        if (open != metric) {
          close();
          next();
          text.append("\"").append(metric).append("\":{");
          open = metric;
        }
        if (n != 0) member(name, n);
      });
  close();
  return text += '}';
}

DAT_DECL counter_values counters::read() const noexcept {
  const auto get = [](const number& n) { return n.load(std::memory_order_relaxed); };
  counter_values v;
  std::transform(operations_.begin(), operations_.end(), v.operations.begin(), [&](const by_operation& from) {
    return counter_values::by_operation{get(from.posted), get(from.posted_bytes), get(from.completed), get(from.bytes)};
  });
  std::transform(failures_.begin(), failures_.end(), v.failures.begin(), get);
  std::transform(outcomes_.begin(), outcomes_.end(), v.connection_outcomes.begin(), get);
  v.connection_requests = get(requests_);
  v.other_events = get(others_);
  v.refused_posts = get(refused_posts_);
  v.drains = get(drains_);
  v.empty_drains = get(empty_drains_);
  v.expired_waits = get(expired_waits_);
  v.wake_ups = get(wake_ups_);
  v.most_drained = get(most_drained_);
  v.most_requests = get(most_requests_);
  v.most_receives = get(most_receives_);
  return v;
}

DAT_DECL std::string to_prometheus(std::span<const device_counter> counters, std::string_view labels) {
  if (counters.empty()) return {};
  std::string text = "# TYPE dat_device_counter untyped\n";
  for (const device_counter& c : counters) {
    text.append("dat_device_counter{counter=\"").append(detail::escaped(c.name)).append("\"");
    if (!labels.empty()) text.append(",").append(labels);
    text.append("} ").append(std::to_string(c.value)).append("\n");
  }
  return text;
}

DAT_DECL std::string to_json(std::span<const device_counter> counters) {
  std::string text = "{";
  for (const device_counter& c : counters) {
    if (text.size() > 1) text += ',';
    text.append("\"").append(detail::escaped(c.name)).append("\":").append(std::to_string(c.value));
  }
  return text += '}';
}

DAT_DECL expected<std::vector<device_counter>> read_device_counters(const ia& of) {
  static constexpr const char* call = "read_device_counters";
  const auto core = detail::core_access::of(of);
  if (!core || core->closed()) return detail::empty_handle(call, return_subtype::handle_ia);
  const std::string port =
      std::string(core->context()->device->ibdev_path) + "/ports/" + std::to_string(core->where().port) + '/';
  std::vector<device_counter> all;
  for (const char* folder : {"counters/", "hw_counters/"}) {
    const std::string path = port + folder;
    const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(path.c_str()), &::closedir);
    while (const dirent* entry = list ? ::readdir(list.get()) : nullptr) {
      const std::string name = entry->d_name;
      if (name[0] == '.' || name == "lifespan") continue; // lifespan: how long the driver keeps values, in ms
      if (const auto value = detail::number_in(path + name)) all.push_back({name, *value});
    }
  }
  if (all.empty())
    return error(return_type::model_not_supported)
        .at(call, object_kind::ia)
        .hint("The driver reports no counters below /sys/class/infiniband.");
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

}} // namespace dat::v0
