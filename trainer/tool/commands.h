#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "tensor/error.h"

namespace CLI {
class App;
}

// Commands of the tool `athanor` that are about models. Each adds itself to the app, and does its work while
// that parses.

namespace athanor::tool {

/// predict MODEL IMAGE...: what a model that a run has left says of pictures.
void add_predict(CLI::App& app);
/// evaluate MODEL --val DATA: how good it is on labelled images.
void add_evaluate(CLI::App& app);

/// report RUN...: the page of a run, or one that compares several.
void add_report(CLI::App& app);

/// Opens a data set by what a user calls it.
using OpenData = std::function<std::unique_ptr<Dataset>(const std::string& data)>;
/// picture DATA INDEX FILE: writes an image of a data set as a PNG.
void add_picture(CLI::App& app, const OpenData& open);

/// The user ended it by a signal.
class Interrupted : public Error {
 public:
  Interrupted(int signal, const std::string& what) : Error(what), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Some of the files could not be read, as has been said; the others have been dealt with.
class SomeUnreadable : public Error {
 public:
  SomeUnreadable() : Error("some files could not be read") {}
};

}  // namespace athanor::tool
