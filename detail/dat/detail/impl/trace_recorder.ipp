// Definitions of trace_recorder.hpp: turns records into the events of a trace file.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/trace_recorder.hpp>

#include <dat/detail/text/errno.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace dat { inline namespace v0 { namespace detail {

/// Writes the events of a trace. Times are nanoseconds since the first record.
class trace_json {
public:
  using argument = std::pair<std::string_view, std::uint64_t>;

  trace_json() : pid_(std::to_string(::getpid())) {}

  /// The name of a row.
  void row(std::uint64_t tid, std::string_view name) {
    begin("thread_name", 'M', 0, tid);
    text_.append(R"(,"args":{"name":")").append(name).append("\"}}");
  }
  void process(std::string_view name) {
    begin("process_name", 'M', 0, 0);
    text_.append(R"(,"args":{"name":")").append(name).append("\"}}");
  }
  /// Writes an event that has a duration.
  void slice(std::string_view name, std::uint64_t tid, std::uint64_t from, std::uint64_t to,
             std::initializer_list<argument> arguments = {}) {
    begin(name, 'X', from, tid);
    text_.append(",\"dur\":");
    microseconds(to - from);
    end(arguments);
  }
  void instant(std::string_view name, std::uint64_t tid, std::uint64_t at,
               std::initializer_list<argument> arguments = {}) {
    begin(name, 'i', at, tid);
    text_.append(",\"s\":\"t\"");
    end(arguments);
  }
  /// Writes the beginning ('b') or end ('e') of an operation; several may run at a time.
  void operation(char phase, std::string_view name, std::uint64_t id, std::uint64_t tid, std::uint64_t at,
                 std::initializer_list<argument> arguments) {
    begin(name, phase, at, tid);
    text_.append(",\"cat\":\"dat\",\"id\":").append(std::to_string(id));
    end(arguments);
  }
  [[nodiscard]] std::string take(std::size_t dropped) {
    std::string all = "{\"traceEvents\":[";
    all.append(text_).append("\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped\":");
    return all.append(std::to_string(dropped)).append("}}\n");
  }

private:
  void begin(std::string_view name, char phase, std::uint64_t at, std::uint64_t tid) {
    text_.append(text_.empty() ? "\n" : ",\n").append("{\"name\":\"").append(name).append("\",\"ph\":\"");
    text_ += phase;
    text_.append("\",\"pid\":").append(pid_).append(",\"tid\":").append(std::to_string(tid)).append(",\"ts\":");
    microseconds(at);
  }
  void end(std::initializer_list<argument> arguments) {
    if (arguments.size() != 0) {
      text_.append(",\"args\":{");
      const char* comma = "";
      for (const auto& [name, value] : arguments) {
        text_.append(comma).append("\"").append(name).append("\":").append(std::to_string(value));
        comma = ",";
      }
      text_ += '}';
    }
    text_ += '}';
  }
  void microseconds(std::uint64_t ns) {
    const std::string rest = std::to_string(1000 + ns % 1000); // keeps the leading zeros
    text_.append(std::to_string(ns / 1000)).append(".").append(rest, 1);
  }

  std::string pid_;
  std::string text_;
};

/// The operations that are under way, by the queue that they were posted to.
class trace_operations {
public:
  struct operation {
    std::uint64_t id;
    trace::record post;
    ::pid_t thread;
  };
  /// A queue is named by its number and its kind: requests, receives, or those of a shared receive queue.
  enum class kind : std::uint8_t { requests, receives, shared };
  using queue = std::pair<std::uint32_t, kind>;

  [[nodiscard]] static bool is_receive(dto_operation o) noexcept {
    return o == dto_operation::recv || o == dto_operation::recv_immediate || o == dto_operation::recv_rdma_immediate ||
           o == dto_operation::recv_ud || o == dto_operation::recv_ud_immediate;
  }
  void post(const trace::record& r, ::pid_t thread) {
    const kind of = r.shared ? kind::shared : is_receive(r.operation) ? kind::receives : kind::requests;
    under_way_[{r.number, of}].push_back({next_++, r, thread});
  }
  /// Removes the last operations that a thread has posted with a number.
  void refuse(const trace::record& r, ::pid_t thread) {
    for (std::uint64_t left = r.bytes; left != 0; --left) {
      std::deque<operation>* last = nullptr;
      for (const kind k : {kind::requests, kind::receives, kind::shared})
        if (const auto it = under_way_.find({r.number, k}); it != under_way_.end())
          if (auto& q = it->second; !q.empty() && q.back().thread == thread && (!last || q.back().id > last->back().id))
            last = &q;
      if (!last) return;
      last->pop_back();
    }
  }
  /// Calls `done(operation, suppressed)` with the operation of a completion and those before it in its queue, which had
  /// no completion of their own. Returns false when the operation was posted before the trace began.
  template <class Done>
  [[nodiscard]] bool complete(const trace::record& c, const Done& done) {
    const bool receive = is_receive(c.operation);
    if (const auto it = under_way_.find({c.number, receive ? kind::receives : kind::requests});
        it != under_way_.end()) {
      auto& q = it->second;
      const auto found = std::find_if(q.begin(), q.end(), [&](const operation& o) {
        return o.post.cookie == c.cookie && (receive || o.post.operation == c.operation);
      });
      if (found != q.end()) {
        for (auto o = q.begin(); o != found; ++o) done(*o, true);
        done(*found, false);
        q.erase(q.begin(), found + 1);
        return true;
      }
    }
    // The buffers of a shared queue complete in any order, with the number of the endpoint that got them.
    if (receive)
      for (auto& [name, q] : under_way_) {
        if (name.second != kind::shared) continue;
        const auto found =
            std::find_if(q.begin(), q.end(), [&](const operation& o) { return o.post.cookie == c.cookie; });
        if (found == q.end()) continue;
        done(*found, false);
        q.erase(found);
        return true;
      }
    return false;
  }
  /// Calls `f` with each operation that has not completed.
  template <class F>
  void rest(const F& f) const {
    for (const auto& [name, q] : under_way_)
      for (const operation& o : q) f(o);
  }

private:
  std::map<queue, std::deque<operation>> under_way_;
  std::uint64_t next_ = 1;
};

/// The name of the process, without what JSON would need to escape.
[[nodiscard]] DAT_DECL std::string process_name() {
  std::string name;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/comm", "re"), &std::fclose);
  for (int c = file ? std::fgetc(file.get()) : EOF; c != EOF && c != '\n'; c = std::fgetc(file.get()))
    name += c < ' ' || c > '~' || c == '"' || c == '\\' ? '_' : static_cast<char>(c);
  return name;
}

/// Turns records, in the order of their times, into the events of a trace.
class trace_writer {
public:
  explicit trace_writer(std::uint64_t begin) : begin_(begin) { out_.process(process_name()); }

  void add(const trace::record& r, ::pid_t thread) {
    using trace::point;
    at_ = r.time - begin_;
    const auto tid = static_cast<std::uint64_t>(thread);
    switch (r.what) {
    case point::post:
      return operations_.post(r, thread);
    case point::refused:
      return operations_.refuse(r, thread);
    case point::completion: {
      const bool known = operations_.complete(r, [&](const trace_operations::operation& o, bool suppressed) {
        write(o);
        const auto status = static_cast<std::uint64_t>(suppressed ? 0 : r.code);
        out_.operation('e', name_of(o), o.id, row(o.post), at_, {{"suppressed", suppressed}, {"status", status}});
      });
      if (!known)
        out_.instant(to_string(r.operation), row_of_ep(r.number), at_,
                     {{"bytes", r.bytes}, {"cookie", r.cookie}, {"status", static_cast<std::uint64_t>(r.code)}});
      return;
    }
    case point::state:
      return change(r);
    case point::connection:
      return out_.instant(r.event, row_of_ep(r.number), at_, {{"reason", static_cast<std::uint64_t>(r.code)}});
    case point::sleep:
      asleep_[thread] = r;
      return;
    case point::wake: {
      const auto it = asleep_.find(thread);
      if (it == asleep_.end()) return;
      out_.slice("wait on evd " + std::to_string(r.number), tid, it->second.time - begin_, at_,
                 {{"errno", static_cast<std::uint64_t>(r.code)}});
      asleep_.erase(it);
      return;
    }
    case point::request:
      return out_.instant("request on port " + std::to_string(r.number), tid, at_,
                          {{"errno", static_cast<std::uint64_t>(r.code)}});
    case point::arm:
    case point::notify:
      return out_.instant(std::string(to_string(r.what)) + " evd " + std::to_string(r.number), tid, at_,
                          {{"errno", static_cast<std::uint64_t>(r.code)}});
    }
  }
  [[nodiscard]] std::string take(std::size_t dropped) {
    operations_.rest([&](const auto& o) { write(o); });
    for (const auto& [number, s] : states_)
      if (s.state != trace::no_state) out_.slice(to_string(s.state), row_of_ep(number), s.since, at_);
    return out_.take(dropped);
  }

private:
  /// Row numbers of endpoints and queues begin above those of threads (PID_MAX_LIMIT). Viewers keep 32 bits of them.
  static constexpr std::uint64_t first_row = std::uint64_t{1} << 22;
  struct state_since {
    ep_state state;
    std::uint64_t since;
  };

  [[nodiscard]] std::uint64_t row_named(bool shared, std::uint32_t number) {
    const auto [row, is_new] = rows_.try_emplace({shared, number}, first_row + rows_.size());
    if (is_new) out_.row(row->second, (shared ? "srq " : "ep ") + std::to_string(number));
    return row->second;
  }
  [[nodiscard]] std::uint64_t row_of_ep(std::uint32_t number) { return row_named(false, number); }
  [[nodiscard]] std::uint64_t row(const trace::record& post) { return row_named(post.shared, post.number); }
  [[nodiscard]] static std::string name_of(const trace_operations::operation& o) {
    return std::string(o.post.shared ? "srq " : "ep ")
        .append(std::to_string(o.post.number))
        .append(" ")
        .append(to_string(o.post.operation));
  }
  void write(const trace_operations::operation& o) {
    out_.operation(
        'b', name_of(o), o.id, row(o.post), o.post.time - begin_,
        {{"bytes", o.post.bytes}, {"cookie", o.post.cookie}, {"thread", static_cast<std::uint64_t>(o.thread)}});
  }
  void change(const trace::record& r) {
    if (r.number == 0) return; // the endpoint has no queue pair yet
    const auto it = states_.find(r.number);
    if (it != states_.end() && it->second.state != trace::no_state)
      out_.slice(to_string(it->second.state), row_of_ep(r.number), it->second.since, at_);
    states_[r.number] = {r.to, at_};
  }

  std::uint64_t begin_;
  std::uint64_t at_ = 0;
  trace_json out_;
  trace_operations operations_;
  std::map<std::uint32_t, state_since> states_;
  std::map<::pid_t, trace::record> asleep_;
  std::map<std::pair<bool, std::uint32_t>, std::uint64_t> rows_;
};

}}} // namespace dat::v0::detail

namespace dat { inline namespace v0 { namespace trace {

DAT_DECL void recorder::take_one(sink& self, const record& r) noexcept {
  auto& to = static_cast<recorder&>(self);
  static thread_local const ::pid_t thread = ::gettid();
  const std::size_t i = to.next_.fetch_add(1, std::memory_order_relaxed);
  if (i < to.kept_.size()) to.kept_[i] = {r, thread};
}

DAT_DECL void recorder::stop() noexcept {
  if (std::exchange(recording_, false)) set_sink(nullptr);
}

DAT_DECL std::size_t recorder::size() const noexcept {
  return std::min(next_.load(std::memory_order_relaxed), kept_.size());
}
DAT_DECL std::size_t recorder::dropped() const noexcept { return next_.load(std::memory_order_relaxed) - size(); }

DAT_DECL std::string recorder::to_json() {
  stop();
  const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(size());
  // A thread reads the time before it gets its place in the records, so the order can differ.
  std::stable_sort(kept_.begin(), end, [](const kept& a, const kept& b) { return a.what.time < b.what.time; });
  detail::trace_writer writer(size() == 0 ? 0 : kept_.front().what.time);
  for (auto k = kept_.begin(); k != end; ++k) writer.add(k->what, k->thread);
  return writer.take(dropped());
}

DAT_DECL expected<void> recorder::write(const std::string& path) {
  const auto failed = [](const char* verb) {
    const int err = errno;
    return detail::map_errno(err).at("recorder.write").from(verb, err);
  };
  const std::string all = to_json();
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "we"), &std::fclose);
  if (!file) return failed("fopen");
  if (std::fwrite(all.data(), 1, all.size(), file.get()) != all.size()) return failed("fwrite");
  if (std::fclose(file.release()) != 0) return failed("fclose");
  return success();
}

}}} // namespace dat::v0::trace
