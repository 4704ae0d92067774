#include <algorithm>

#include <fmt/format.h>

#include "simt/emulator/graph.h"
#include "simt/emulator/runtime.h"

using namespace simt;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  return api_call("cudaStreamCreate", [&](Runtime& all) {
    all.device(current_device()).has_context = true;
    *handle = all.handles.make_stream(current_device(), flags);
    (*handle)->priority = std::clamp(priority, kHighestPriority, 0);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return api_call("cudaStreamGetPriority", [&](Runtime& all) {
    *priority = all.stream(handle).priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api_call<Faults::reported_after>("cudaStreamDestroy", [&](Runtime& all) {
    if (!handle || handle->magic != Stream::kAlive) {
      throw Failure{cudaErrorInvalidResourceHandle,
                    "the stream was destroyed already, or is the default stream"};
    }
    forbid_captured(*handle);
    all.handles.drop_stream(*handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api_call("cudaStreamSynchronize", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    forbid_captured(stream);
    forbid_in_capture(all);
    all.wait_for(stream);
    all.stream(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api_call("cudaStreamQuery", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    forbid_captured(stream);
    forbid_in_capture(all);
    const bool done = all.poll({&stream, stream.queued});
    if (done) race::host_waited(stream.clock);
    all.stream(handle);
    return done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  return api_call("cudaStreamWaitEvent", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    const Event& event = all.event(event_handle);
    if (stream.capture || event.capture_id != 0) {
      capture_wait(all, stream, event);
    } else if (event.mark.stream) {
      all.queue(stream, {JoinWork{}, Vector<Mark>(1, event.mark), event.clock});
    }
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* user_data, simt::Site site) {
  return api_call("cudaLaunchHostFunc", [&](Runtime& all) {
    all.queue(all.stream(handle), {HostWork{function, user_data, site}});
    return cudaSuccess;
  });
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return api_call("cudaEventCreate", [&](Runtime& all) {
    all.device(current_device()).has_context = true;
    *handle = all.handles.make_event(current_device(), flags);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return api_call<Faults::reported_after>("cudaEventDestroy", [&](Runtime& all) {
    all.handles.drop_event(all.event(handle));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle) {
  return api_call("cudaEventRecord", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    Event& event = all.event(event_handle);
    if (event.device != stream.device) {
      throw Failure{
          cudaErrorInvalidResourceHandle,
          fmt::format("the event is of device {}, the stream of device {}", event.device, stream.device)};
    }
    if (stream.capture) return capture_record(stream, event), cudaSuccess;
    event.capture_id = 0;
    event.captured.clear();
    event.mark = all.queue(stream, {RecordWork{&event, ++event.generation}});
    event.clock = stream.clock;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return api_call("cudaEventQuery", [&](Runtime& all) {
    const Event& event = all.event(handle);
    forbid_captured(all, event);
    forbid_in_capture(all);
    const bool done = all.poll(event.mark);
    if (done) race::host_waited(event.clock);
    if (event.mark.stream && !all.device(event.device).fault.empty()) {
      throw Failure{cudaErrorLaunchFailure, all.device(event.device).fault};
    }
    return done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return api_call("cudaEventSynchronize", [&](Runtime& all) {
    Event& event = all.event(handle);
    forbid_captured(all, event);
    forbid_in_capture(all);
    all.wait_for(event);
    if (!all.device(event.device).fault.empty()) {
      throw Failure{cudaErrorLaunchFailure, all.device(event.device).fault};
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return api_call("cudaEventElapsedTime", [&](Runtime& all) {
    const Event &start = all.event(start_handle), &end = all.event(end_handle);
    for (const Event* event : {&start, &end}) {
      if ((event->flags & cudaEventDisableTiming) != 0 || !event->mark.stream) {
        throw Failure{cudaErrorInvalidResourceHandle,
                      "an event was created without timing, or was never recorded"};
      }
      if (!reached(event->mark)) return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end.when - start.when).count();
    return cudaSuccess;
  });
}
