#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

// A folder on a disk that may be killed before any call, or lose power.
class Disk {
 public:
  struct Killed : std::runtime_error {
    Killed() : std::runtime_error("killed") {}
  };

  /// A new empty file, or an existing one made empty.
  void create(const std::string& name) {
    call();
    auto& file = names_[name];
    if (!file) file = std::make_shared<File>();
    file->contents.clear();
  }
  /// Appends to an existing file.
  void write(const std::string& name, const std::string& text) {
    call();
    find(name).contents += text.substr(0, text.size() / 2);
    call();  // a long write is not one step
    find(name).contents += text.substr(text.size() / 2);
  }
  void sync(const std::string& name) {
    call();
    find(name).certain = find(name).contents;
  }
  /// Replaces a file of the new name, in one step.
  void rename(const std::string& from, const std::string& to) {
    call();
    find(from);
    names_[to] = names_[from];
    names_.erase(from);
  }
  void remove(const std::string& name) {
    call();
    find(name);
    names_.erase(name);
  }
  bool exists(const std::string& name) const { return names_.contains(name); }
  void sync_folder() {
    call();
    certain_names_ = names_;
  }

  // For the tests.
  std::optional<std::string> contents(const std::string& name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? std::nullopt : std::optional(found->second->contents);
  }
  /// Kills before the n-th call from now; -1: never.
  void kill_before(int calls) { left_ = calls; }
  void lose_power(bool keeps_names, bool keeps_contents) {
    if (!keeps_names) names_ = certain_names_;
    for (auto& [name, file] : names_)
      if (!keeps_contents) file->contents = file->certain;
  }

 private:
  struct File {
    std::string contents, certain;
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;

  void call() {
    if (left_ == 0) throw Killed();
    if (left_ > 0) --left_;
  }
  File& find(const std::string& name) {
    const auto found = names_.find(name);
    if (found == names_.end()) throw std::runtime_error("there is no file " + name);
    return *found->second;
  }

  Names names_, certain_names_;
  int left_ = -1;
};
