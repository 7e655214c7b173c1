// The syntax of dat.conf and of the file that DAT_OVERRIDE names, and the choice among entries (uDAPL 2.0 §8.5.3).
//
// ia::open looks up names in dat.conf, so every program that includes <dat/dat.hpp> compiles this header. To compile
// fast, the parser uses views into the text of the file, and neither containers nor streams.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace dat { inline namespace v0 { namespace detail {

inline constexpr const char* conf_file = "/etc/dat.conf";
inline constexpr const char* conf_file_2 = "/etc/rdma/dat.conf"; // where the packages of RHEL put it
inline constexpr std::size_t conf_name_max = 255;                // DAT_NAME_MAX_LENGTH without the NUL

/// The file named by DAT_OVERRIDE, or null. A set-user-ID program ignores the environment of its caller.
[[nodiscard]] inline const char* conf_override() noexcept { return ::secure_getenv("DAT_OVERRIDE"); }

/// The text of a file.
class conf_text {
public:
  explicit conf_text(const char* path) noexcept {
    const int fd = path ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
      err_ = path ? errno : ENOENT;
      return;
    }
    std::size_t room = 0;
    for (;;) {
      if (size_ == room) {
        room = room == 0 ? 4096 : 2 * room;
        void* max = room <= most ? std::realloc(data_, room) : nullptr;
        if (!max) {
          err_ = room <= most ? ENOMEM : EFBIG;
          break;
        }
        data_ = static_cast<char*>(max);
      }
      const ssize_t n = ::read(fd, data_ + size_, room - size_);
      if (n > 0) size_ += static_cast<std::size_t>(n);
      if (n == 0) break;
      if (n < 0 && errno != EINTR) {
        err_ = errno;
        break;
      }
    }
    ::close(fd);
    if (err_ != 0) size_ = 0;
  }
  conf_text(const conf_text&) = delete;
  conf_text& operator=(const conf_text&) = delete;
  ~conf_text() { std::free(data_); }

  [[nodiscard]] std::string_view view() const noexcept { return {data_, size_}; }
  [[nodiscard]] int err() const noexcept { return err_; }

private:
  static constexpr std::size_t most = std::size_t{1} << 24; // the size limit, because a device file has no end
  char* data_ = nullptr;
  std::size_t size_ = 0;
  int err_ = 0;
};

/// A field of the file, without its quotes. The escapes are resolved when the field is read.
class conf_field {
public:
  conf_field() noexcept = default;
  conf_field(std::string_view raw, bool quoted, std::uint32_t column) noexcept
      : raw_(raw), column_(column), quoted_(quoted) {}

  [[nodiscard]] std::uint32_t column() const noexcept { return column_; }
  [[nodiscard]] std::string_view raw() const noexcept { return raw_; }
  /// The part before the place `end` of `raw`, which must not be inside an escape.
  [[nodiscard]] conf_field first(std::size_t end) const noexcept { return {raw_.substr(0, end), quoted_, column_}; }

  /// Calls `f` for each character.
  template <class F>
  constexpr void each(F f) const noexcept(noexcept(f('a'))) {
    for (std::size_t i = 0; i < raw_.size(); ++i) {
      // The backslash is never the last character, because it would escape the closing quote.
      if (quoted_ && raw_[i] == '\\') ++i;
      f(raw_[i]);
    }
  }
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t n = 0;
    each([&](char) noexcept { ++n; });
    return n;
  }
  [[nodiscard]] bool operator==(std::string_view text) const noexcept {
    std::size_t n = 0;
    bool same = true;
    each([&](char c) noexcept {
      same = same && n < text.size() && text[n] == c;
      ++n;
    });
    return same && n == text.size();
  }
  /// The characters up to the capacity, and their number.
  template <std::size_t N>
  [[nodiscard]] std::string_view copy(std::array<char, N>& to) const noexcept {
    std::size_t n = 0;
    each([&](char c) noexcept {
      if (n < N) to[n++] = c;
    });
    return {to.data(), n};
  }
  [[nodiscard]] bool same(const conf_field& o) const noexcept {
    std::array<char, conf_name_max + 1> text;
    return size() == o.size() && size() <= text.size() && *this == o.copy(text);
  }

private:
  std::string_view raw_;
  std::uint32_t column_ = 0;
  bool quoted_ = false;
};

/// "12" to 12; a text that is no decimal number below 65536 to -1.
[[nodiscard]] constexpr std::int32_t conf_number(std::string_view digits) noexcept {
  std::int32_t n = digits.empty() || digits.size() > 5 ? -1 : 0;
  for (const char c : digits) n = n < 0 || c < '0' || c > '9' ? -1 : 10 * n + (c - '0');
  return n <= 65535 ? n : -1;
}

/// The contents of one line.
struct conf_item {
  enum class kind : std::uint8_t {
    entry,     ///< all eight fields
    selection, ///< DAT_OVERRIDE: the provider version to use for a name, API version and thread safety
    fault      ///< none of them: `why` names the fault in `column`
  };
  kind what = kind::fault;
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  const char* why = nullptr;

  conf_field name, version, library, instance, platform;
  bool user_level = false; ///< u: uDAPL; k: kDAPL, which dat ignores
  std::uint16_t major = 0;
  std::uint16_t minor = 0;
  bool thread_safe = false;
  bool is_default = false;
  conf_field version_id; ///< of the provider version "acme.2.1": "acme", 2, 1
  std::uint16_t version_major = 0;
  std::uint16_t version_minor = 0;
  std::string_view extra; ///< the text after the eighth field, without comments

  /// "acme.2.01" is the version "acme.2.1".
  [[nodiscard]] bool same_version(const conf_item& o) const noexcept {
    return version_major == o.version_major && version_minor == o.version_minor && version_id.same(o.version_id);
  }
  [[nodiscard]] bool same_key(const conf_item& o) const noexcept {
    return user_level == o.user_level && major == o.major && minor == o.minor && thread_safe == o.thread_safe &&
           name.same(o.name);
  }
};

/// Reads the lines of a text one after the other, without those that are blank.
class conf_reader {
public:
  /// \param overrides the file is DAT_OVERRIDE's: lines of four fields select, lines of eight add
  conf_reader(std::string_view text, bool overrides) noexcept : rest_(text), overrides_(overrides) {}

  /// Returns false at the end of the text.
  [[nodiscard]] bool next(conf_item& item) noexcept {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      const std::string_view line = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      item = {};
      item.line = ++line_;
      count_ = 0;
      if (!split(line, item)) return true;
      if (count_ == 0) continue;
      understand(line, item);
      return true;
    }
    return false;
  }

private:
  static constexpr std::size_t known = 8;

  static bool fault(conf_item& item, std::size_t column, const char* why) noexcept {
    item.what = conf_item::kind::fault;
    item.column = static_cast<std::uint32_t>(column);
    item.why = why;
    return false;
  }
  static constexpr bool blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

  [[nodiscard]] bool split(std::string_view line, conf_item& item) noexcept {
    std::size_t i = 0;
    for (;;) {
      while (i < line.size() && blank(line[i])) ++i;
      if (i == line.size() || line[i] == '#') return true;
      const std::size_t begin = i;
      const bool quoted = line[i] == '"';
      std::string_view raw;
      if (quoted) {
        for (++i; i < line.size() && line[i] != '"'; ++i) {
          if (line[i] != '\\') continue;
          if (i + 1 < line.size() && line[i + 1] != '\\' && line[i + 1] != '"')
            return fault(item, i + 1, "only \\\\ and \\\" are escapes");
          ++i;
        }
        if (i >= line.size()) return fault(item, begin + 1, "no closing quote");
        raw = line.substr(begin + 1, i - begin - 1);
        ++i;
        if (i < line.size() && !blank(line[i]) && line[i] != '#')
          return fault(item, i + 1, "text right after a closing quote");
      } else {
        for (; i < line.size() && !blank(line[i]) && line[i] != '#'; ++i)
          if (line[i] == '"') return fault(item, i + 1, "a quote in the middle of a field");
        raw = line.substr(begin, i - begin);
      }
      if (count_ < known) fields_[count_] = conf_field(raw, quoted, static_cast<std::uint32_t>(begin + 1));
      if (count_ == known) extra_begin_ = begin;
      ++count_;
      end_ = i;
    }
  }

  bool understand(std::string_view line, conf_item& item) noexcept {
    const bool entry = !overrides_ || (count_ > 3 && (fields_[3] == "default" || fields_[3] == "nondefault"));
    if (count_ < (entry ? known : 4))
      return fault(item, end_ + 1,
                   entry ? "fewer than the eight fields of an entry" : "fewer than the four fields of an override");
    item.name = fields_[0];
    if (item.name.size() == 0) return fault(item, fields_[0].column(), "an empty name");
    if (item.name.size() > conf_name_max) return fault(item, fields_[0].column(), "a name of more than 255 characters");

    const std::string_view api = fields_[1].raw();
    const std::size_t dot = api.find('.');
    const std::int32_t major = dot != api.npos && dot > 0 ? conf_number(api.substr(1, dot - 1)) : -1;
    const std::int32_t minor = dot != api.npos ? conf_number(api.substr(dot + 1)) : -1;
    if (major < 0 || minor < 0 || (api[0] != 'u' && api[0] != 'k'))
      return fault(item, fields_[1].column(), "an API version is u or k and major.minor: u2.0");
    item.user_level = api[0] == 'u';
    item.major = static_cast<std::uint16_t>(major);
    item.minor = static_cast<std::uint16_t>(minor);

    item.thread_safe = fields_[2] == "threadsafe";
    if (!item.thread_safe && !(fields_[2] == "nonthreadsafe"))
      return fault(item, fields_[2].column(), "neither threadsafe nor nonthreadsafe");
    item.is_default = fields_[3] == "default";
    if (entry && !item.is_default && !(fields_[3] == "nondefault"))
      return fault(item, fields_[3].column(), "neither default nor nondefault");

    item.version = fields_[entry ? 5 : 3];
    const std::string_view version = item.version.raw();
    const std::size_t last = version.rfind('.');
    const std::size_t before = last != version.npos && last > 0 ? version.rfind('.', last - 1) : version.npos;
    const std::int32_t to = before != version.npos ? conf_number(version.substr(last + 1)) : -1;
    const std::int32_t from = before != version.npos ? conf_number(version.substr(before + 1, last - before - 1)) : -1;
    if (from < 0 || to < 0 || before == 0)
      return fault(item, item.version.column(), "a provider version is id.major.minor: acme.2.0");
    item.version_id = item.version.first(before);
    item.version_major = static_cast<std::uint16_t>(from);
    item.version_minor = static_cast<std::uint16_t>(to);
    item.what = conf_item::kind::selection;
    if (!entry) return true;

    item.library = fields_[4];
    item.instance = fields_[6];
    item.platform = fields_[7];
    if (count_ > known) {
      if (item.major < 2 || (item.major == 2 && item.minor == 0))
        return fault(item, extra_begin_ + 1, "more than the eight fields of an entry");
      item.extra = line.substr(extra_begin_, end_ - extra_begin_);
    }
    item.what = conf_item::kind::entry;
    return true;
  }

  std::string_view rest_;
  bool overrides_;
  std::uint32_t line_ = 0;
  std::size_t count_ = 0;
  std::size_t end_ = 0;
  std::size_t extra_begin_ = 0;
  std::array<conf_field, known> fields_{};
};

/// The best of several providers of one name (uDAPL 2.0 §8.2.4.1): equal major version, the smallest minor version that
/// is not below the wanted one, equal thread safety; the first of equals. If none fits, `why` names the first part that
/// differs.
struct version_match {
  std::uint32_t major = 2;
  std::uint32_t minor = 0;
  bool thread_safe = true;

  bool found = false;
  std::uint32_t best = 0;
  return_subtype why = return_subtype::name_not_registered;

  /// Takes a candidate. Returns true when it is better than all before.
  [[nodiscard]] constexpr bool offer(std::uint32_t its_major, std::uint32_t its_minor, bool its_safety) noexcept {
    const auto near = its_major != major          ? return_subtype::major_not_found
                      : its_minor < minor         ? return_subtype::minor_not_found
                      : its_safety != thread_safe ? return_subtype::thread_safety_not_found
                                                  : return_subtype::none;
    if (near != return_subtype::none) {
      if (near > why) why = near;
      return false;
    }
    if (found && its_minor >= best) return false;
    found = true;
    best = its_minor;
    return true;
  }
};

/// The texts of the system and of the override as one list of entries, the override's first.
struct conf_texts {
  std::string_view system;
  std::string_view overrides;

  /// Whether the entry is the selected one for its name, API version and thread safety.
  [[nodiscard]] bool chosen(const conf_item& entry) const noexcept {
    conf_item s;
    for (conf_reader r(overrides, true); r.next(s);)
      if (s.what == conf_item::kind::selection && s.same_key(entry)) return s.same_version(entry);
    return entry.is_default;
  }

  /// The selected entry of the name; null when no provider fits `m`. `m` must be new.
  [[nodiscard]] conf_item find(std::string_view name, version_match& m) const noexcept {
    conf_item best, item;
    for (const bool first : {true, false})
      for (conf_reader r(first ? overrides : system, first); r.next(item);)
        if (item.what == conf_item::kind::entry && item.user_level && item.name == name && chosen(item) &&
            m.offer(item.major, item.minor, item.thread_safe))
          best = item;
    return best;
  }
};

/// The parts of the instance data of an entry: "mlx5_0 1", "ib0 0", "10.0.0.1".
struct conf_instance {
  std::string_view what; ///< a device, an interface or an address
  std::int32_t port = 0; ///< 0: not given; -1: not valid

  [[nodiscard]] static conf_instance of(std::string_view text) noexcept {
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    std::size_t end = 0;
    while (end < text.size() && !blank(text[end])) ++end;
    conf_instance i{text.substr(0, end)};
    while (end < text.size() && blank(text[end])) ++end;
    if (end < text.size()) i.port = conf_number(text.substr(end));
    if (i.port > 255) i.port = -1;
    return i;
  }
};

}}} // namespace dat::v0::detail
