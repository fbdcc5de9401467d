/** What packages of this library share; programs do not use it, and it may change at any time. */
package dev.leman.internal;
