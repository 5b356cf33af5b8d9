// How far the processors are from each other: what handing work to another thread costs, and
// reading what it wrote. On a virtual machine it changes as the host moves the processors about.
#ifndef PLUMB_RUNTIME_BASE_ROUND_TRIP_H_
#define PLUMB_RUNTIME_BASE_ROUND_TRIP_H_

namespace plumb {

// Seconds in which a cache line goes from one processor to another and back: the best of some
// hundreds of stretches of such trips, between two threads on the first two processors that the
// calling thread may run on. 0 where it may run on one only, or the system starts no threads. Takes
// some milliseconds. Thread-safe.
double MeasureRoundTrip();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_ROUND_TRIP_H_
